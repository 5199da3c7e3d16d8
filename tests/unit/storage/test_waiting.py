"""Waiting until something changes in a folder."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import pytest

from pipeline.storage.waiting import Folders


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two folders that are there."""
    made = [tmp_path / "one", tmp_path / "other"]
    for each in made:
        each.mkdir()
    return made


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "inotify_init1"), reason="only Linux tells of changes")
@pytest.mark.parametrize("how", ["written", "linked", "renamed"])
def test_who_waits_is_told_of_a_name_that_comes(tmp_path: Path, folders: list[Path], how: str) -> None:
    """Versions of a table are written, linked or renamed into its log."""
    source = tmp_path / "source"
    source.write_text("x")
    watched = Folders([str(each) for each in folders])
    before = watched.state()
    assert not watched.wait(0)
    if how == "written":
        (folders[1] / "new").write_text("x")
    elif how == "linked":
        os.link(source, folders[1] / "new")
    else:
        source.rename(folders[1] / "new")
    assert watched.wait(60)
    assert not watched.wait(0)
    assert [old == new for old, new in zip(before, watched.state(), strict=True)] == [True, False]


def test_a_folder_that_is_not_there_yet_is_looked_for(tmp_path: Path, folders: list[Path]) -> None:
    """The offsets of a query are there from its first batch on."""
    late = tmp_path / "late"
    watched = Folders([str(folders[0]), str(late)])
    assert watched.state()[1] == 0
    assert not watched.wait(0)
    late.mkdir()
    made = watched.state()[1]
    assert made > 0
    (late / "0").write_text("x")
    assert watched.wait(60)
    assert watched.state()[1] > made


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "inotify_init1"), reason="only Linux tells of changes")
@pytest.mark.parametrize("name", [".0.json.tmp", "_commit.json.tmp", "0.crc", "0.crc.new", "_last_checkpoint"])
def test_what_no_reader_looks_for_is_no_news(folders: list[Path], name: str) -> None:
    """Each commit comes with such files, and each look that they cause takes a query milliseconds."""
    watched = Folders([str(folders[0])])
    watched.state()
    before = watched.state()
    (folders[0] / name).write_text("x")
    assert not watched.wait(60)
    assert watched.state() == before
    (folders[0] / name).rename(folders[1] / name)
    assert watched.state() == before
    (folders[0] / "1.json").write_text("x")
    assert watched.wait(60)
    assert watched.state() != before


def test_a_change_that_the_system_does_not_tell_of_is_seen(folders: list[Path]) -> None:
    """On a file system of a network others' changes show in the time of the folder alone."""
    watched = Folders([str(folders[0])])
    watched.state()
    before = watched.state()
    os.utime(folders[0], ns=(1, 1))
    assert not watched.wait(0)
    assert watched.state() != before
    assert watched.state() == watched.state()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "inotify_init1"), reason="elsewhere looks are so frequent anyway")
def test_who_waits_is_woken_by_another_thread(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that begins to wait for a message has its consumer look at once."""
    monkeypatch.setattr("pipeline.storage.waiting._QUIET_LOOK_S", 60)
    watched = Folders([str(each) for each in folders])
    watched.state()
    threading.Timer(0.05, watched.wake).start()
    begun = time.monotonic()
    assert not watched.wait(60)
    assert time.monotonic() - begun < 30
    watched.close()


def test_whoever_is_forgotten_holds_nothing_of_the_system(tmp_path: Path) -> None:
    """Linux has a hundred watches or so for a user, and a process starts its stages again and again."""
    held = Path("/proc/self/fd")

    def count() -> int:
        return sum(1 for _ in held.iterdir()) if held.is_dir() else 0

    Folders([str(tmp_path)]).state()
    before = count()
    for _ in range(5):
        Folders([str(tmp_path)]).state()
    assert count() == before

"""A disk, or a right, that is missing: one line that names the folder and what to do, and nothing of a library."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands.failures import explain
from pipeline.storage.room import check_room
from tests.support.client import new_warehouse
from tests.support.invoked import invoke, output

ROOM = 1 << 20


def test_a_folder_that_cannot_be_made_is_named_with_the_reason_and_another_one_is_made(tmp_path: Path) -> None:
    """It was said that the warehouse is missing, and to make it with the command that had just failed."""
    (tmp_path / "file").touch()
    found = invoke(["init", "-w", str(tmp_path / "file" / "w")])
    line = f"delayline: {tmp_path}/file/w/inbox: Not a directory; name a folder that is there, or can be made\n"
    assert (found.exit_code, found.stderr) == (1, line)
    assert output(str(tmp_path / "w"), "init").startswith("Warehouse ready")


def disk(monkeypatch: pytest.MonkeyPatch, *, free: int = ROOM, files: int = ROOM, flags: int = 0) -> None:
    """The disk of all folders has so many free blocks and files."""
    counts = (4_096, 4_096, ROOM, free, free, ROOM, files, files, flags, 255)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(counts))


@pytest.mark.parametrize("words", [["send", "-t", "t", "hi"], ["subscribe", "-t", "t", "-s", "s"], ["init"]])
def test_a_full_disk_is_said_before_native_code_panics_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """delta-rs prints its panic from a thread of its own, where nobody can catch it."""
    root = new_warehouse(str(tmp_path))
    disk(monkeypatch, free=15)
    found = invoke([*words, "-w", root])
    table = {"send": "inbox", "subscribe": "subscriptions", "init": "inbox"}[words[0]]
    line = f"delayline: the disk of {root}/{table} is full; make room and try again"
    assert (found.exit_code, found.stderr.splitlines()[-1]) == (1, line)
    disk(monkeypatch)
    assert invoke([*words, "-w", root]).exit_code == 0


def test_a_folder_that_takes_no_file_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, files, a flag of the disk, a right: and what a file system does not count is not missed."""
    wanted = {"free": errno.ENOSPC, "files": errno.ENOSPC, "flags": errno.EROFS}
    for name, number in wanted.items():
        disk(monkeypatch, **{name: os.ST_RDONLY if name == "flags" else 0})
        with pytest.raises(OSError, match=str(tmp_path)) as refused:
            check_room(tmp_path)
        assert refused.value.errno == number
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4_096, 4_096, 0, 0, 0, 0, 0, 0, 0, 255)))
    check_room(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        check_room(tmp_path)


def test_colours_of_a_library_are_left_out_of_its_words() -> None:
    """Nobody reads escapes."""
    code, said = explain(OSError("Kernel error \x1b[31m↳\x1b[0m out of luck"))
    assert (code, said) == (1, "OSError: Kernel error ↳ out of luck")

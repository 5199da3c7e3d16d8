"""A small file that several processes write is one of theirs, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.storage import files, local
from pipeline.storage.files import Files, passing, sync_files


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that somebody else writes in the middle of each lasting write."""
    there, sync = str(tmp_path / "note.json"), local.sync

    def meanwhile(synced: Path) -> None:
        if synced.is_file():
            Files().write(there, "theirs", lasting=False)
        sync(synced)

    monkeypatch.setattr(local, "sync", meanwhile)
    sync_files(on=True)
    return there


def test_two_that_write_a_file_at_a_time_do_not_stop_each_other(path: str, tmp_path: Path) -> None:
    """The second one renamed the first one's file away, and the first one failed; or it had the other one's text."""
    try:
        Files().write(path, "ours")
    finally:
        sync_files(on=False)
    assert Files().text(path) == "ours"
    assert [each.name for each in tmp_path.iterdir()] == ["note.json"]


def test_nothing_waits_for_the_disk_below_a_folder_that_is_deleted_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warehouse under test writes twenty files an instant; what lies beside it is written as ever."""
    synced: list[Path] = []
    for module in (local, files):
        monkeypatch.setattr(module, "sync", synced.append)
    sync_files(on=True)
    try:
        with passing(str(tmp_path / "soon")):
            Files().write(f"{tmp_path}/soon/a/note.json", "a")
            Files().sync(f"{tmp_path}/soon/a/note.json", f"{tmp_path}/soon/a")
            assert synced == []
            Files().sync(f"{tmp_path}/sooner")
        Files().sync(f"{tmp_path}/soon/a")
    finally:
        sync_files(on=False)
    assert synced == [tmp_path / "sooner", tmp_path / "soon" / "a"]

"""A small file that several processes write is one of theirs, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.storage import local
from pipeline.storage.files import Files, sync_files


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

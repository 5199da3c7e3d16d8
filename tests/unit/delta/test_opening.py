"""Tables are opened by delta-rs while others commit to them."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from pipeline.client.create import create_all
from pipeline.delta import deltars
from pipeline.delta.logs import opening
from pipeline.delta.logs.opening import table_at
from schemas import SUBSCRIPTIONS


def test_a_table_whose_log_is_listed_in_the_middle_of_a_commit_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list may hold the checksum of a version and not its entry, which came meanwhile."""
    create_all(str(tmp_path))
    log = tmp_path / SUBSCRIPTIONS.name / "_delta_log"
    (log / f"{1:020d}.crc").write_bytes((log / f"{0:020d}.crc").read_bytes())

    def looked(folder: str, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(folder, version=version)
        except DeltaError:
            (log / f"{1:020d}.json").write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}))
            raise

    monkeypatch.setattr(opening, "DeltaTable", looked)
    assert deltars.open_table(str(tmp_path), SUBSCRIPTIONS).version() == 1


def test_a_checksum_without_its_entry_is_an_error_in_the_end(tmp_path: Path) -> None:
    """Nobody waits for an entry that does not come."""
    create_all(str(tmp_path))
    log = tmp_path / SUBSCRIPTIONS.name / "_delta_log"
    (log / f"{1:020d}.crc").write_bytes((log / f"{0:020d}.crc").read_bytes())
    with pytest.raises(DeltaError, match="CRC"):
        table_at(str(tmp_path / SUBSCRIPTIONS.name))


def test_a_folder_without_a_table_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a table to come asks often."""
    looks = list[str]()

    def looked(folder: str, version: int | None = None) -> DeltaTable:
        looks.append(folder)
        return DeltaTable(folder, version=version)

    monkeypatch.setattr(opening, "DeltaTable", looked)
    with pytest.raises(TableNotFoundError):
        table_at(str(tmp_path))
    assert len(looks) == 1

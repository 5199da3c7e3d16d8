"""The files of a table, told by its log alone, and when only Delta can tell them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

pytest.importorskip("pyspark", reason="the errors of the stages need requirements/all.lock")

from pipeline.config.errors import BrokenVersion
from pipeline.delta.logs.snapshot import described, live_files
from pipeline.storage.files import Files

VERSIONS = 5


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Five appends and a DELETE that wrote a file anew, with a checkpoint in the middle."""
    folder = tmp_path / "table"
    for number in range(VERSIONS):
        rows = pa.table({"n": [number, -number], "text": ["a b", "%41"]})
        write_deltalake(str(folder), rows, mode="append")
        if number == VERSIONS // 2:
            DeltaTable(str(folder)).create_checkpoint()
    DeltaTable(str(folder)).delete("n = 1")
    return folder


def log(table: Path, version: int, kind: str = "json") -> Path:
    """A file of its log."""
    return table / "_delta_log" / f"{version:020d}.{kind}"


def add_entry(table: Path, *actions: dict[str, Any]) -> None:
    """A further version with these actions."""
    log(table, VERSIONS + 1).write_text("\n".join(map(json.dumps, actions)))


def test_files_are_those_of_the_checkpoint_and_of_the_entries_after_it(table: Path) -> None:
    """Also when all before the checkpoint was cut. What was taken out is not there, what came in its place is."""
    needed = {"partitionValues": {}, "modificationTime": 0, "dataChange": True}
    add_entry(table, {"add": {"path": "a%20b.parquet", "size": 7, "tags": {"made": "here"}, **needed}})
    live = live_files(Files(), str(table))
    assert live is not None
    version, files = live
    assert version == VERSIONS + 1
    opened = pa.table(DeltaTable(str(table)).get_add_actions())
    assert {file["path"]: file["size"] for file in files} == dict(
        zip(opened["path"].to_pylist(), opened["size_bytes"].to_pylist(), strict=True)
    )
    assert sum(json.loads(file["stats"])["numRecords"] for file in files if file["stats"]) == 2 * VERSIONS - 1
    assert [file["tags"] for file in files if file["size"] == 7] == [{"made": "here"}]
    for cut in range(VERSIONS // 2):
        log(table, cut).unlink()
    assert live_files(Files(), str(table)) == live


def test_a_file_that_a_version_takes_out_and_puts_in_again_is_there(table: Path) -> None:
    """The order of the actions says nothing, and each writer has its own way to spell a path."""
    _, before = live_files(Files(), str(table)) or (0, [])
    path = before[0]["path"]
    add_entry(table, {"add": {"path": path, "size": 8}}, {"remove": {"path": path}})
    _, after = live_files(Files(), str(table)) or (0, [])
    assert [file["size"] for file in after if file["path"] == path] == [8]
    log(table, VERSIONS + 2).write_text(json.dumps({"remove": {"path": path.replace("part", "%70art")}}))
    assert len((live_files(Files(), str(table)) or (0, []))[1]) == len(before) - 1


def lose_an_entry(table: Path) -> None:
    """The log was cut while it was read."""
    log(table, VERSIONS - 1).unlink()


def lose_the_checkpoint(table: Path) -> None:
    """Of a log that was cut, a checkpoint of another kind may be left."""
    log(table, VERSIONS // 2, "checkpoint.parquet").rename(
        log(table, VERSIONS // 2, "checkpoint.0000000001.0000000001.parquet")
    )
    log(table, 0).unlink()


def lose_the_last_entry(table: Path) -> None:
    """There is a checkpoint of a version that has none."""
    log(table, VERSIONS // 2, "checkpoint.parquet").rename(log(table, VERSIONS + 1, "checkpoint.parquet"))


def cut_the_checkpoint_short(table: Path) -> None:
    """A power cut did."""
    log(table, VERSIONS // 2, "checkpoint.parquet").write_bytes(b"PAR1")


def change_the_checkpoint(table: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write its actions anew."""
    path = log(table, VERSIONS // 2, "checkpoint.parquet")
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        change(row)
    pq.write_table(pa.Table.from_pylist(rows), path)


def leave_statistics_out(table: Path) -> None:
    """`delta.checkpoint.writeStatsAsJson` is false."""
    change_the_checkpoint(table, lambda row: row["add"] and row["add"].pop("stats"))


def name_files_elsewhere(table: Path) -> None:
    """A checkpoint of the second version has sidecars."""
    change_the_checkpoint(table, lambda row: row.update(sidecar={"path": "beside.parquet"}))


def delete_rows_by_a_vector(table: Path) -> None:
    """A part of a file's rows do not count."""
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    add_entry(table, {"add": {"path": "more.parquet", "size": 9, "deletionVector": vector}})


@pytest.mark.parametrize(
    "how",
    [
        lose_an_entry,
        lose_the_checkpoint,
        lose_the_last_entry,
        cut_the_checkpoint_short,
        leave_statistics_out,
        name_files_elsewhere,
        delete_rows_by_a_vector,
    ],
)
def test_what_the_log_does_not_say_is_left_to_delta(table: Path, how: Callable[[Path], None]) -> None:
    """A list with a file too many, or too few, would be rows twice or rows lost."""
    assert live_files(Files(), str(table)) is not None
    how(table)
    assert live_files(Files(), str(table)) is None


def test_an_entry_that_was_cut_short_is_named(table: Path) -> None:
    """As by everybody who reads logs."""
    log(table, VERSIONS + 1).write_text("")
    with pytest.raises(BrokenVersion):
        live_files(Files(), str(table))


def test_a_table_is_what_its_log_last_said_of_it(table: Path) -> None:
    """By the checksum of the newest version, by the entries, or by the checkpoint when all before it was cut."""
    made = {kind: each[kind] for each in map(json.loads, log(table, 0).read_text().split("\n")) for kind in each}
    # A checkpoint has a column for each name, which is NULL where nothing was said.
    made = {kind: {name: each for name, each in action.items() if each is not None} for kind, action in made.items()}
    assert described(Files(), str(table)) == (VERSIONS, made["protocol"], made["metaData"])
    for cut in range(VERSIONS // 2 + 1):
        log(table, cut).unlink()
    assert described(Files(), str(table)) == (VERSIONS, made["protocol"], made["metaData"])
    later = {**made["metaData"], "configuration": {"a": "b"}}
    add_entry(table, {"metaData": later})
    assert described(Files(), str(table)) == (VERSIONS + 1, made["protocol"], later)
    checksum = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "metadata": made["metaData"]}
    log(table, VERSIONS + 1, "crc").write_text(json.dumps(checksum))
    assert described(Files(), str(table)) == (VERSIONS + 1, checksum["protocol"], made["metaData"])


@pytest.mark.parametrize("how", [lose_the_checkpoint, lose_the_last_entry])
def test_what_a_table_is_is_left_to_delta_when_the_log_does_not_say_it(
    table: Path, how: Callable[[Path], None]
) -> None:
    """As with its files."""
    how(table)
    assert described(Files(), str(table)) is None

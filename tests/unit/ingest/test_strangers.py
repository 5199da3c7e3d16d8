"""What strangers leave in the inbox: the legal is read, the broken is listed, and what lies beside is taken in."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="ingest is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.config.settings import Settings
from pipeline.delta.deltars import arrow_schema, open_table, path_of
from pipeline.delta.reading.strangers import unfolding
from pipeline.storage.files import Files
from schemas import INBOX, MESSAGES, REJECTED_INGEST
from tests.support.examined import wrong
from tests.support.forged import INFO, add, file_of, version
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 2_000_000_000_000
GOOD = "good.parquet"
UNACCOUNTED = {"not_taken", "taken_twice", "not_accepted", "not_checked"}
"""What the doctor would say if it missed rows; that files are gone or broken it may say."""


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse without a message."""
    found = Stages(str(tmp_path / "warehouse"))
    found.instant = T0
    return found


def taken(stages: Stages) -> list[str]:
    """The payloads that ingest has accepted, in any order."""
    rows = open_table(stages.root, MESSAGES).to_pyarrow_table(columns=["payload"]).to_pylist()
    return sorted(row["payload"].decode() for row in rows)


def listed(stages: Stages) -> list[tuple[str, str]]:
    """What ingest has refused: the reason, and the file that it names."""
    rows = open_table(stages.root, REJECTED_INGEST).to_pyarrow_table().to_pylist()
    return sorted((row["reason"], dict(row["properties"] or ()).get("file", "")) for row in rows)


def good(stages: Stages, name: str = GOOD) -> dict[str, Any]:
    """A file with a message, and the action that adds it."""
    return add(name, file_of(stages.root, INBOX, name, [message(name)]))


def folder(stages: Stages) -> Path:
    """The folder of the inbox."""
    return Path(path_of(stages.root, INBOX))


def ingests(stages: Stages) -> None:
    """Ingest takes all there is, a stage that begins anew, too, and then what comes next."""
    assert stages.ingest()
    stages.restart("ingest")
    assert stages.ingest(message("next"))


NULLS: dict[str, list[Mapping[str, Any]]] = {
    "of actions": [{"add": None, "remove": None, "txn": None, **INFO}, {"metaData": None, "protocol": None}],
    "of info": [{"commitInfo": None}],
    "of fields": [{"commitInfo": {"operation": None, "operationMetrics": None, "userMetadata": None}}],
    "of a txn": [{**INFO, "txn": {"appId": "x", "version": 1, "lastUpdated": None}}],
}


@pytest.mark.parametrize("name", NULLS)
def test_explicit_nulls_are_what_is_not_there(stages: Stages, name: str) -> None:
    """Writers of other languages spell out each field of an action, and each action of a line."""
    file = good(stages)["add"] | dict.fromkeys(("stats", "tags", "deletionVector", "baseRowId", "clusteringProvider"))
    version(stages.root, INBOX, *NULLS[name], {"remove": None, "add": file, "cdc": None})
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert listed(stages) == []


INFOS: dict[str, Any] = {
    "a text": "by hand",
    "a list": [1, {"a": None}],
    "numbers": {"operation": 5, "operationParameters": [1], "operationMetrics": {"numTargetRowsInserted": "many"}},
    "texts": {"operation": "MERGE", "operationParameters": "x", "operationMetrics": "y", "userMetadata": {"stage": 1}},
    "a note": {"userMetadata": json.dumps({"stage": "source-x", "owner": [], "batch": 1, "note": "text"})},
    "ours": {"engineInfo": ["delayline"], "txnId": {}},
    "depth": json.loads("[" * 200 + "]" * 200),
    "digits": {"timestamp": 10**600},
}


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("name", INFOS)
def test_what_a_writer_says_of_itself_has_any_shape(stages: Stages, name: str, *, removes: bool) -> None:
    """The protocol leaves it to writers."""
    version(stages.root, INBOX, {"commitInfo": INFOS[name]}, good(stages))
    if removes:
        size = good(stages, "other.parquet")
        version(stages.root, INBOX, {"commitInfo": INFOS[name]}, {"remove": {"path": GOOD, "dataChange": True}}, size)
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert [reason for reason, _ in listed(stages)] == (["not_an_append"] if removes else [])


def cut(path: Path) -> None:
    """A file without its end."""
    path.write_bytes(path.read_bytes()[:-10])


def torn(path: Path) -> None:
    """A file whose pages are damaged; its footer is sound."""
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)


def typed(path: Path) -> None:
    """A file in which a column is of a type that cannot be read as ours."""
    pq.write_table(pa.table({"topic": ["t"], "payload": pa.array([{"a": 1}])}), path)


def folded(path: Path) -> None:
    """A folder under the name of a file."""
    path.unlink()
    path.mkdir()


BROKEN: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no Parquet": lambda path: path.write_bytes(b"topic,payload\n" * 99),
    "cut": cut,
    "torn": torn,
    "of other types": typed,
    "a folder": folded,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_listed_and_ingest_goes_on(stages: Stages, name: str) -> None:
    """One producer's broken file stood in the way of everybody's messages, at each start again."""
    version(stages.root, INBOX, INFO, good(stages), good(stages, "bad.parquet"))
    BROKEN[name](folder(stages) / "bad.parquet")
    version(stages.root, INBOX, INFO, good(stages, "later.parquet"))
    ingests(stages)
    assert taken(stages) == [GOOD, "later.parquet", "next"]
    assert listed(stages) == [("broken_file", "bad.parquet")]
    assert not {what for what, _ in wrong(stages.root)} & UNACCOUNTED


def test_a_batch_of_broken_files_alone_is_a_batch(stages: Stages) -> None:
    """There is nothing else to commit then but what is listed."""
    version(stages.root, INBOX, INFO, add("a.parquet"), add("b.parquet"))
    ingests(stages)
    assert taken(stages) == ["next"]
    assert listed(stages) == [("broken_file", "a.parquet"), ("broken_file", "b.parquet")]


@pytest.mark.parametrize("step", ["ingest.messages", "ingest.rejected_ingest"])
def test_a_repeated_batch_leaves_out_the_files_that_it_left_out(stages: Stages, step: str) -> None:
    """What is listed stays so, also when the file is there by then: else its rows would be taken and listed."""
    version(stages.root, INBOX, INFO, good(stages), add("bad.parquet"))
    stages.die_after(step)
    assert not stages.ingest()
    good(stages, "bad.parquet")
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert listed(stages) == [("broken_file", "bad.parquet")]


def outside(stages: Stages) -> Path:
    """A file of another tenant, beside the inbox."""
    path = folder(stages).parent / "secret" / "theirs.parquet"
    path.parent.mkdir()
    pq.write_table(pa.Table.from_pylist([message("theirs")], schema=arrow_schema(INBOX)), path)
    return path


PATHS: dict[str, Callable[[Path, Path], str]] = {
    "dots": lambda path, _: f"../secret/{path.name}",
    "encoded dots": lambda path, _: f"%2e%2e/secret/{path.name}",
    "dots within": lambda path, _: f"a/../../secret/{path.name}",
    "absolute": lambda path, _: str(path),
    "a scheme": lambda path, _: path.as_uri(),
    "a store": lambda path, _: f"s3://bucket/{path.name}",
    "a linked file": lambda path, here: _linked(here / "link.parquet", path),
    "a linked folder": lambda path, here: f"{_linked(here / 'sub', path.parent)}/{path.name}",
    "nothing": lambda *_: "",
    "zero": lambda *_: "a%00b",
    "itself": lambda *_: ".",
    "home": lambda path, _: f"~/{path.name}",
}


def _linked(link: Path, to: Path) -> str:
    link.symlink_to(to)
    return link.name


@pytest.mark.parametrize("name", PATHS)
def test_a_file_outside_of_the_table_is_listed_and_not_read(stages: Stages, name: str) -> None:
    """The job may read what the writer of an entry may not: other tenants' files came out as messages."""
    path = PATHS[name](outside(stages), folder(stages))
    version(stages.root, INBOX, INFO, good(stages), add(path, 10))
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert Counter(reason for reason, _ in listed(stages)).total() == 1


LIES = {
    "few rows": {"numRecords": 0},
    "null": {"numRecords": None, "minValues": None, "maxValues": None, "nullCount": None},
    "texts": {"numRecords": "1", "minValues": "x", "maxValues": [1], "nullCount": 5},
    "wrong ends": {"numRecords": 1, "minValues": {"topic": "z"}, "maxValues": {"topic": "a"}},
    "a number": 5,
    "digits": {"numRecords": int("9" * 400)},
}


@pytest.mark.parametrize("name", LIES)
def test_statistics_that_lie_hide_no_message(stages: Stages, name: str) -> None:
    """They are a hint to readers, and nobody checks them."""
    file = good(stages)["add"] | {"stats": json.dumps(LIES[name])}
    version(stages.root, INBOX, INFO, {"add": file})
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert not {what for what, _ in wrong(stages.root)} & UNACCOUNTED


def test_a_change_whose_files_are_said_to_be_empty_is_listed(stages: Stages) -> None:
    """Its rows are not taken in, so somebody has to say so."""
    file = good(stages)["add"] | {"stats": json.dumps({"numRecords": 0})}
    version(stages.root, INBOX, INFO, {"remove": {"path": "x.parquet", "dataChange": True}}, {"add": file})
    ingests(stages)
    assert taken(stages) == ["next"]
    assert [reason for reason, _ in listed(stages)] == ["not_an_append"]


SMALL = 1 << 20
"""The least that may be set of what a file may unfold to."""


def large(where: Path, **how: Any) -> None:  # noqa: ANN401 - options of the writer
    """A file of 300 messages with one payload of 10 kB, which is written once."""
    rows = [message("large") | {"payload": b"x" * 10_000}] * 300
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(INBOX)), where, **how)


@pytest.mark.parametrize("died", [None, "ingest.messages", "ingest.rejected_ingest"])
def test_a_file_that_unfolds_to_far_more_than_its_size_is_listed(stages: Stages, died: str | None) -> None:
    """A megabyte in `inbox` was a gigabyte in `messages`. What lies beside it is taken in, whatever dies."""
    large(folder(stages) / "large.parquet")
    stages.settings = replace(stages.settings, max_unfolded_bytes=SMALL)
    stages.restart("ingest")
    version(stages.root, INBOX, INFO, good(stages), add("large.parquet"))
    if died is not None:
        stages.die_after(died)
        assert not stages.ingest()
        # What was planned stays so, whatever the setting says now.
        stages.settings = replace(stages.settings, max_unfolded_bytes=1 << 30)
        stages.restart("ingest")
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert listed(stages) == [("file_too_large", "large.parquet")]
    assert not {what for what, _ in wrong(stages.root)} & UNACCOUNTED


@pytest.mark.parametrize("bad", ["large large", "large torn", "torn large large", "large gone torn"])
def test_files_that_are_bad_in_several_ways_stop_no_batch(stages: Stages, bad: str) -> None:
    """The second one that unfolded to too much ended ingest, at each start again."""
    stages.settings = replace(stages.settings, max_unfolded_bytes=SMALL)
    stages.restart("ingest")
    names = [f"{number}-{kind}" for number, kind in enumerate(bad.split())]
    for name in names:
        if name.endswith("large"):
            large(folder(stages) / name)
        elif name.endswith("torn"):
            (folder(stages) / name).write_bytes(b"PAR1")
    version(stages.root, INBOX, INFO, *map(add, names), good(stages))
    ingests(stages)
    assert taken(stages) == [GOOD, "next"]
    assert sorted(name for _, name in listed(stages)) == names


def test_a_file_of_large_payloads_is_taken(stages: Stages) -> None:
    """As large as what it holds, whatever that comes to; and one that unfolds to less than is allowed."""
    stages.settings = replace(stages.settings, max_unfolded_bytes=SMALL)
    stages.restart("ingest")
    payloads = [random.Random(number).randbytes(100_000) for number in range(30)]  # noqa: S311 - seeded
    rows = [message("plain") | {"payload": payload} for payload in payloads]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(INBOX)), folder(stages) / "plain.parquet")
    version(stages.root, INBOX, INFO, add("plain.parquet"))
    assert stages.ingest()
    stages.settings = Settings()
    stages.restart("ingest")
    large(folder(stages) / "large.parquet")
    version(stages.root, INBOX, INFO, add("large.parquet"))
    assert stages.ingest()
    assert open_table(stages.root, MESSAGES).to_pyarrow_table(columns=["topic"]).num_rows == 330
    assert listed(stages) == []


@pytest.mark.parametrize(
    "how", [{}, {"use_dictionary": False, "column_encoding": {"payload": "DELTA_BYTE_ARRAY", "topic": "PLAIN"}}]
)
def test_what_a_file_unfolds_to_is_counted_without_unfolding_it(tmp_path: Path, how: dict[str, Any]) -> None:
    """Where Spark reads the batch; texts may repeat whole ones, or parts of those before."""
    table = tmp_path / "inbox"
    table.mkdir()
    large(table / "large.parquet", **how)
    added = [{"version": 1, "path": "large.parquet"}, {"version": 2, "path": "none.parquet"}]
    found = unfolding(Files(), str(table), INBOX, added, SMALL)
    assert [(each.version, each.path, each.reason) for each in found] == [(1, "large.parquet", "file_too_large")]
    assert unfolding(Files(), str(table), INBOX, added, 300 * 10_100) == []

"""Settle on tables from different times: a copy that was made while it took batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="settle needs requirements/all.lock")
pytest.importorskip("pyspark", reason="settle needs requirements/all.lock")

from pipeline.config.errors import VersionGone
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.settle.letters import DeadLetters
from pipeline.settle.undone import undone
from pipeline.subscriptions.letters import APPLICATION
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, INBOX, REDELIVERY, SEGMENTS, Table
from tests.support.examined import wrong
from tests.support.released import released, say
from tests.support.stages import Stages
from tests.support.stream import Killed, at, message

COMES_AGAIN, GIVEN_UP = Policies(ack=True, retry_min_ms=60_000), Policies(ack=True, max_redeliveries=0)
LATER = ("segments", "closed", "consumer_events")


@pytest.fixture
def stages(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stages]:
    """Six messages were released to a subscription, and the first one is acknowledged."""
    policies = getattr(request, "param", COMES_AGAIN)
    with released(tmp_path, *map(str, range(6)), policies=policies, visible=False) as found:
        said(found, "ack", 0)
        yield found


def said(stages: Stages, kind: str, entry: int) -> None:
    """A consumer says something of a message, and settle takes it."""
    say(stages, kind, entry)
    stages.instant += 1_000
    assert stages.settle()


def batches_of(stages: Stages) -> int:
    """How many batches settle has done."""
    return int(stages._body("settle")._last.batch)


def open_of(stages: Stages) -> tuple[int, int]:
    """How many messages are outstanding, and how many wait to come again."""
    counts = stages._body("settle")._opened["t", "s"].outstanding.counts
    return counts.outstanding, counts.waiting


def kept(stages: Stages) -> None:
    """Copy what a hot copy takes first."""
    for path in map(Path(stages.root).joinpath, ("_checkpoints", CURSORS.name)):
        if path.exists():
            copytree(path, path.with_suffix(".then"))


def put_back(stages: Stages, *, checkpoint: bool) -> None:
    """Settle begins on the copy, with the checkpoint of that time or with the newest one."""
    stages.restart("settle")
    for path in map(Path(stages.root).joinpath, ("_checkpoints", CURSORS.name) if checkpoint else (CURSORS.name,)):
        rmtree(path)
        if path.with_suffix(".then").exists():
            copytree(path.with_suffix(".then"), path)


@pytest.mark.parametrize("behind", [("nack",), ("nack", "nack"), ("nack", "ack", "nack", "nack")])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_copy_does_not_know_of_is_taken_again_from_where_it_ends(
    stages: Stages, behind: tuple[str, ...], *, checkpoint: bool
) -> None:
    """A message whose nack was in a batch between was neither open nor news on the copy: nobody ever got it."""
    done = batches_of(stages)
    kept(stages)
    for entry, kind in enumerate(behind, 1):
        said(stages, kind, entry)
    expected = open_of(stages)
    assert expected == (5 - len(behind), behind.count("nack"))
    put_back(stages, checkpoint=checkpoint)
    torn = len(behind) == 1
    warehouse = stages.warehouse
    assert undone(warehouse) == (None if torn else (done + 1, done + len(behind)))
    assert stages.settle()
    assert open_of(stages) == expected
    assert undone(warehouse) is None
    said(stages, "ack", 5)
    assert open_of(stages) == (expected[0] - 1, expected[1])
    assert SETTLE in {path.name for path in Path(stages.root, "_checkpoints").iterdir()}


def cut(stages: Stages, table: Table) -> None:
    """The log of a table begins with its newest version."""
    opened = open_table(stages.root, table)
    opened.create_checkpoint()
    for entry in Path(stages.root, table.name, "_delta_log").glob("*.json"):
        if int(entry.stem) < opened.version():
            entry.unlink()


@pytest.mark.parametrize("behind", [1, 3])
def test_what_comes_again_on_a_copy_is_known_by_its_rows_when_the_log_was_cut(stages: Stages, behind: int) -> None:
    """The copy took so long that maintenance had cut the log of `segments` meanwhile, and that of events not yet."""
    kept(stages)
    done = batches_of(stages)
    for entry in range(1, 1 + behind):
        said(stages, "nack", entry)
    assert stages.ingest(message("later", "t", after=60))
    put_back(stages, checkpoint=True)
    cut(stages, SEGMENTS)
    assert undone(stages.warehouse) == (done + 1, done + behind)
    assert stages.settle()
    assert undone(stages.warehouse) is None


@pytest.mark.parametrize("step", ["settle.noted", "settle.segments"])
def test_a_torn_batch_is_finished_though_the_log_was_cut_while_settle_had_nothing_to_do(
    stages: Stages, step: str
) -> None:
    """Settle finds what the batch has put into the index. A rebuild that left it out lost what had failed."""
    for each in ("later", "and later"):
        assert stages.ingest(message(each, "t", after=60))
    cut(stages, SEGMENTS)
    say(stages, "nack", 1)
    stages.instant += 1_000
    stages.die_after(step)
    assert not stages.settle()
    assert undone(stages.warehouse) is None


@pytest.mark.parametrize("table", [CONSUMER_EVENTS, REDELIVERY], ids=lambda table: table.name)
def test_settle_refuses_a_copy_that_lacks_what_it_has_to_read(stages: Stages, table: Table) -> None:
    """It took longer than logs are kept; the page says to begin it again."""
    kept(stages)
    said(stages, "nack", 1)
    for _ in range(2):
        append(stages.root, table, open_table(stages.root, table).to_pyarrow_table())
    put_back(stages, checkpoint=True)
    cut(stages, table)
    with pytest.raises(VersionGone) as refused:
        stages.settle()
    assert refused.value.table == table.name
    assert ("source_cut", SETTLE) in wrong(stages.root)


def letters(stages: Stages) -> list[tuple[int, bytes]]:
    """Entry and payload of the dead letters."""
    rows = open_table(stages.root, INBOX).to_pyarrow_table().to_pylist()
    letters_of = [(dict(row["properties"] or ()), row["payload"]) for row in rows if row["topic"] == "t-s-DLQ"]
    return sorted((int(each["delayline.position"].split(":")[1]), payload) for each, payload in letters_of)


@pytest.mark.parametrize("stages", [GIVEN_UP], indirect=True)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_dead_letter_that_a_copy_has_does_not_come_again(stages: Stages, count: int, *, checkpoint: bool) -> None:
    """A batch that only gives letters is in no table beside `inbox` and `cursors`."""
    kept(stages)
    for entry in range(1, 1 + count):
        said(stages, "nack", entry)
    put_back(stages, checkpoint=checkpoint)
    said(stages, "nack", 4)
    stages.restart("settle")
    said(stages, "nack", 5)
    assert [entry for entry, _ in letters(stages)] == [*range(1, 1 + count), 4, 5]
    assert "dead_letters_gone" not in {what for what, _ in wrong(stages.root)}


@pytest.mark.parametrize("stages", [GIVEN_UP], indirect=True)
def test_a_dead_letter_behind_a_batch_that_is_finished_does_not_come_again(stages: Stages) -> None:
    """The first batch that the copy does not know is known by what it has refused, and is repeated as it was."""
    kept(stages)
    say(stages, "nack", 400)
    said(stages, "nack", 1)
    said(stages, "nack", 2)
    put_back(stages, checkpoint=True)
    said(stages, "nack", 3)
    assert [entry for entry, _ in letters(stages)] == [1, 2, 3]


@pytest.mark.parametrize("stages", [GIVEN_UP], indirect=True)
def test_a_dead_letter_of_a_torn_batch_whose_checkpoint_is_lost_does_not_come_again(stages: Stages) -> None:
    """Nobody knows what was drawn for the batch."""
    stages.die_after("settle.inbox")
    with pytest.raises(AssertionError):
        said(stages, "nack", 1)
    rmtree(stages.warehouse.checkpoint(SETTLE))
    said(stages, "nack", 2)
    assert [entry for entry, _ in letters(stages)] == [1, 2]


@pytest.mark.parametrize("stages", [GIVEN_UP], indirect=True)
@pytest.mark.parametrize("more", [{"payload": b"forged"}, {"deliver_at": at(4_000_000_000_000)}, {"message_key": "k"}])
def test_what_a_stranger_writes_for_a_dead_letter_hides_none(stages: Stages, more: dict[str, Any]) -> None:
    """Only a letter that is the same in all but its cause stands for another one."""
    said(stages, "nack", 1)
    (row,) = (row for row in open_table(stages.root, INBOX).to_pyarrow_table().to_pylist() if row["topic"] == "t-s-DLQ")
    properties = dict(row["properties"])
    properties["delayline.position"] = properties["delayline.position"].replace(":1", ":2")
    row |= {"payload": b"2", "properties": list(properties.items())} | more
    append(stages.root, INBOX, rows_of(INBOX, [row]), once=(APPLICATION, 1 << 60))
    stages.restart("settle")
    said(stages, "nack", 2)
    assert (2, b"2") in letters(stages)


@pytest.mark.parametrize("size", [1 << 15, 2 << 20])
def test_a_dead_letter_with_a_long_text_does_not_come_again(tmp_path: Path, size: int) -> None:
    """Only names are short: a payload may be longer than what is read of other tables."""
    with released(tmp_path, "0", "x" * size, "2", policies=GIVEN_UP, visible=False) as stages:
        said(stages, "ack", 0)
        kept(stages)
        said(stages, "nack", 1)
        put_back(stages, checkpoint=True)
        said(stages, "nack", 2)
        assert [entry for entry, _ in letters(stages)] == [1, 2]


@pytest.mark.parametrize("stages", [GIVEN_UP], indirect=True)
def test_rows_that_strangers_note_as_dead_letters_do_not_end_settle(stages: Stages) -> None:
    """Delta keeps no map from having a name twice, no text from being no UTF-8, and no time from being far away."""
    no_text = pa.array([b"\xff"]).view(pa.string())
    properties = pa.array([[("twice", None), ("twice", "told")]], pa.map_(pa.string(), pa.string()))
    far = pa.array([1 << 62], pa.int64()).view(pa.timestamp("us", "UTC"))
    given = {"topic": no_text, "message_key": no_text, "properties": properties, "deliver_at": far}
    rows = rows_of(INBOX, [{"topic": "t"}])
    for name, column in given.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    append(stages.root, INBOX, rows, once=(APPLICATION, 1 << 60))
    stages.restart("settle")
    said(stages, "nack", 2)
    rows = open_table(stages.root, INBOX).to_pyarrow_table(columns=["topic", "payload"])
    topics = rows.column("topic").cast(pa.binary()).to_pylist()
    assert (b"t-s-DLQ", b"2") in zip(topics, rows.column("payload").to_pylist(), strict=True)


@pytest.mark.parametrize("stages", [GIVEN_UP], indirect=True)
def test_a_dead_letter_does_not_come_again_when_settle_dies_between_pieces(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first piece is new, and says nothing of those behind it."""
    monkeypatch.setattr("pipeline.settle.letters._ROW_BYTES", 64 << 20)
    kept(stages)
    said(stages, "nack", 2)
    put_back(stages, checkpoint=True)
    say(stages, "nack", 1)
    say(stages, "nack", 3)
    put = DeadLetters._put

    def put_and_die(*args: Any) -> None:  # noqa: ANN401 - as it is called
        put(*args)
        raise Killed

    monkeypatch.setattr(DeadLetters, "_put", put_and_die)
    with pytest.raises(Killed):
        stages._body("settle").step(stages.instant + 1_000, patient=False)
    monkeypatch.setattr(DeadLetters, "_put", put)
    stages.restart("settle")
    said(stages, "ack", 4)
    assert [entry for entry, _ in letters(stages)] == [1, 2, 3]

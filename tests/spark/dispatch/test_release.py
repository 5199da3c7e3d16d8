"""A release is the same whoever makes it: Spark, or the driver by whole arrays."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.client.create import create_all
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import Settings
from pipeline.delta.checkpoints import Position
from pipeline.delta.reading.messages import Bounds, MessageLog, message_groups
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.dispatch.closed import Closed, ClosedLog
from pipeline.dispatch.release import LOOKED_UP, Stamp
from pipeline.dispatch.release_local import Found, LocalRelease, local_runs
from pipeline.dispatch.release_spark import SparkRelease, looked_up
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.parquet import whole
from schemas import CLOSED, DELIVERIES, MESSAGES, REDELIVERY, Table
from state.units import EPOCH, Ms
from tests.support.rows import T0, arrow_messages, messages, runs
from tests.support.rows import rows_of as table_rows
from tests.support.spark import session

Row = dict[str, Any]
Release = LocalRelease | SparkRelease
LIVES = {("t", "s"): 2, ("t", "é"): 2, ("t", "z"): 2, ("u", "s"): 2}
TICK_MS, BUCKET_MS = 1_000, 512
PARTLY, AHEAD = T0 - BUCKET_MS, T0 - 10 * BUCKET_MS
PRIORITIES = {("t", "s"): "a", ("u", "s"): "nosuch"}
_SAID = ("b", "7", "-3", "999999999", "1234567890", "7\n", " 1", "", "+1", "٣")
"""What is said of a priority; only the second to fourth are one."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three ledgers in two files and a batch of runs over them; some positions have no message."""
    spark = session()
    made = Warehouse(str(tmp_path_factory.mktemp("release") / "warehouse"), spark)
    create_all(made.root)
    draw = random.Random(20_131_105)  # noqa: S311 - not a secret
    log = [_message(draw, ledger, entry) for ledger in (3, 5, 8) for entry in range(150) if draw.random() < 0.95]
    for part in (log[::2], log[1::2]):
        messages(spark, *part).write.format("delta").mode("append").save(made.path(MESSAGES))
    for closed in ([_closed(draw) for _ in range(40)], [_closed(draw) for _ in range(9)]):
        table_rows(spark, CLOSED.schema, *closed).coalesce(1).write.format("delta").mode("append").save(
            made.path(CLOSED)
        )
    for number in range(2):
        batch = [_run(draw) for _ in range(60)] if number else [_run(draw, life=1)]
        runs(spark, *batch).coalesce(1).write.format("delta").mode("append").save(made.path(REDELIVERY))
    return made


def _message(draw: random.Random, ledger: int, entry: int) -> Row:
    due = T0 - BUCKET_MS * (entry // 50) - draw.randrange(BUCKET_MS)
    asked = due if draw.random() < 0.7 else None
    optional = {
        "deliver_at": asked,
        "message_key": draw.choice([None, "k"]),
        "properties": draw.choice([None, *({"a": text} for text in _SAID)]),
    }
    payload = draw.choice([None, bytearray(draw.randbytes(2_000))])
    topic = "u" if entry % 50 == 49 else "t"
    return {"topic": topic, "ledger_id": ledger, "entry_id": entry, "due_time": due, "payload": payload, **optional}


def _run(draw: random.Random, life: int = 2) -> Row:
    first = draw.randrange(150)
    last = min(149, first + draw.choice([0, 0, 1, 7]))
    due = T0 - BUCKET_MS * (first // 50)
    name = draw.choice([*LIVES, ("t", "gone")])
    again, moved = draw.randrange(3), draw.choice([0, 0, 1])
    cause = "rescheduled" if moved else draw.choice(["nack", "owner_lost"]) if again else "due"
    count = {"redelivery_count": again, "round": again + 1 if moved else None, "cause": cause}
    # What comes again, or got another due time, does so long after its message was due.
    due = T0 - BUCKET_MS * draw.randrange(3) if again or moved else due
    where = {"topic": name[0], "subscription": name[1], "life": life, "ledger_id": draw.choice([3, 5, 8])}
    times = {"due_time": due, "message_due": due, "tick_ms": TICK_MS, "released_at": T0}
    return {**where, **times, **count, "first_entry": first, "last_entry": last}


def _closed(draw: random.Random) -> Row:
    """A run of redeliveries that are not to be made, perhaps of nobody; and of first deliveries, which stay."""
    kept = ("topic", "subscription", "life", "ledger_id", "first_entry")
    columns = {"redelivery_count": draw.randrange(3), "cause": "nack", "closed_at": T0, "batch_id": 0}
    run = {name: value for name, value in _run(draw).items() if name in kept}
    return run | columns | {"last_entry": run["first_entry"] + 30}


def closed_in(warehouse: Warehouse, version: int = -1) -> Closed:
    """What `closed` says to a batch."""
    return Closed(ClosedLog(warehouse), version)


def by_spark(warehouse: Warehouse) -> Release | None:
    """The release as Spark makes it."""
    log, closed = MessageLog(warehouse), closed_in(warehouse)
    return SparkRelease.of(warehouse.read(REDELIVERY), LIVES, log, closed, PRIORITIES)


def in_the_driver(warehouse: Warehouse, most: int = 10_000) -> Release | None:
    """The release as the driver makes it."""
    settings = Settings(driver_rows=most)
    rows = local_runs(warehouse, Position(EPOCH, 0, -1), Position(EPOCH, 3, -1), settings)
    closed = closed_in(warehouse)
    return LocalRelease.of(rows, LIVES, MessageLog(warehouse), settings, closed, PRIORITIES)


def rows_of(found: DataFrame | pa.Table) -> list[Row]:
    """Rows in their order."""
    table = found if isinstance(found, pa.Table) else found.toArrow()
    rows: list[Row] = table.to_pylist()
    return [{name: row[name] for name in sorted(row)} for row in rows]


@pytest.mark.parametrize(
    ("tasks", "now"),
    [
        pytest.param(1, T0, id="1-due"),
        pytest.param(1, PARTLY, id="1-partly due", marks=pytest.mark.soak),
        pytest.param(1, AHEAD, id="1-ahead", marks=pytest.mark.soak),
        pytest.param(3, T0, id="3-due"),
        pytest.param(3, PARTLY, id="3-partly due"),
        pytest.param(3, AHEAD, id="3-ahead"),
    ],
)
def test_the_same_rows_in_the_same_parts(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, now: int, tasks: int
) -> None:
    """Order and numbers too; what is due later lies in later parts. Whether payloads are held does not matter."""
    if tasks > 1:
        monkeypatch.setattr("pipeline.config.settings._ROW_BYTES", 5)
        monkeypatch.setattr("pipeline.storage.gather._PIECE_BYTES", 3_000)
    settings = Settings(partitions=tasks, rows_per_task=20, publish_ms=BUCKET_MS)
    ways = []
    for make in (by_spark, in_the_driver):
        release = make(warehouse)
        assert release is not None
        if isinstance(release, LocalRelease):
            assert (release.matches.messages.texts.held is None) is (tasks > 1)
        path = warehouse.path(DELIVERIES)
        parts = release.write(Appender(warehouse.session, path, DELIVERIES), settings, Stamp(7, Ms(T0 + 9)), Ms(now))
        rows = [[_read(Path(path, file.path)) for file in part.files] for part in parts]
        spans = [(part.first_due, part.last_due, part.count) for part in parts]
        ways.append((spans, [[row for file in part for row in file] for part in rows], release.window.positions))
    assert ways[0] == ways[1]
    spans, parts_rows, positions = ways[0]
    assert len(spans) == (1 if now == T0 else 3 if now < T0 - BUCKET_MS else 2)
    numbers = [row["sequence"] for part in parts_rows for row in part]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 0 < len(numbers) < positions
    own = [row for part in parts_rows for row in part if (row["topic"], row["subscription"]) == ("t", "s")]
    ranks = [(row["due_time"], -_priority(row)) for row in own]
    assert ranks == sorted(ranks)
    assert {_priority(row) for row in own} == {0, 7, -3, 999_999_999}


def _priority(row: Row) -> int:
    said = dict(row["properties"] or ()).get("a")
    return int(said) if said in _SAID[1:4] else 0


def _read(path: Path) -> list[Row]:
    return rows_of(pq.ParquetFile(path).read())


def test_what_is_closed_does_not_come_again_and_what_comes_late_is_found(warehouse: Warehouse) -> None:
    """Position by position, as the tables say it. First deliveries stay, and so do other counts of a position."""
    keys = ("topic", "subscription", "life", "ledger_id", "redelivery_count")

    def singles(table: Table, version: int | None = None) -> set[tuple[Any, ...]]:
        found = warehouse.read(table, version).collect()
        return {
            (*(row[name] for name in keys), entry)
            for row in found
            for entry in range(row["first_entry"], row["last_entry"] + 1)
        }

    asked, closed = {each for each in singles(REDELIVERY) if each[2] == 2 and each[1] != "gone"}, singles(CLOSED)
    log = {(row["topic"], row["ledger_id"], row["entry_id"]) for row in warehouse.read(MESSAGES).collect()}
    left = {each for each in asked if not each[4] or each not in closed}
    wanted = {each for each in left if (each[0], each[3], each[5]) in log}
    release = in_the_driver(warehouse)
    assert isinstance(release, LocalRelease)
    rows = release._deliveries(0, len(release.matches.found), Stamp(0, EPOCH)).to_pylist()
    assert {(*(row[name] for name in keys), row["entry_id"]) for row in rows} == wanted
    assert {each[4] for each in asked & closed} == {each[4] for each in wanted} == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 99])
def test_a_batch_that_is_repeated_follows_the_version_that_it_noted(warehouse: Warehouse, version: int) -> None:
    """What was closed since is in it; when that version is gone, what is closed now counts."""
    everywhere, settings = [Bounds()], Settings()
    rows = closed_in(warehouse, version).rows(everywhere, settings)
    frame = closed_in(warehouse, version).frame(everywhere).toArrow()
    wanted = warehouse.read(CLOSED, 1 if version == 1 else None).toArrow()
    assert sorted(rows_of(rows), key=str) == sorted(rows_of(frame), key=str) == sorted(rows_of(wanted), key=str)
    first = closed_in(warehouse)
    assert first.rows(everywhere, settings).num_rows == 49
    assert first.version == 2
    with pytest.raises(NotInDriver):
        closed_in(warehouse, version).rows(everywhere, Settings(driver_rows=30))


def test_the_same_positions_are_missing(warehouse: Warehouse) -> None:
    """What has no message, and what the log has under another topic."""

    def missing(make: Callable[[Warehouse], Release | None]) -> list[Row]:
        release = make(warehouse)
        assert release is not None
        return sorted(rows_of(release.missing(7)), key=str)

    found = missing(by_spark)
    assert missing(in_the_driver) == found
    assert {row["reason"] for row in found} == {"message_missing"}


def test_the_messages_of_runs_are_looked_up_alike(warehouse: Warehouse) -> None:
    """By the number of the run; redeliveries, and runs of other topics in the same ledger, are among them."""
    log, settings = MessageLog(warehouse), Settings()
    batch = local_runs(warehouse, Position(EPOCH, 0, -1), Position(EPOCH, 3, -1), settings)
    here = pa.concat_tables(list(Found.of(batch, log, settings).pieces()))
    by_spark = looked_up(warehouse.spark, batch, log)
    assert here.column_names == by_spark.column_names == list(LOOKED_UP)
    sides = (sorted(map(str, each.cast(here.schema).to_pylist())) for each in (here, by_spark))
    mine, other = sides
    assert mine == other
    assert len(mine) > batch.num_rows


def test_nobody_listens(warehouse: Warehouse) -> None:
    """A batch of runs of subscriptions that are gone is no release."""
    rows = local_runs(warehouse, Position(EPOCH, 0, -1), Position(EPOCH, 3, -1), Settings())
    log, closed = MessageLog(warehouse), closed_in(warehouse)
    assert LocalRelease.of(rows, {}, log, Settings(), closed) is None
    assert SparkRelease.of(warehouse.read(REDELIVERY), {}, log, closed) is None
    assert closed.version == -1


@pytest.mark.parametrize("most", [0, 60, 61, 100])
def test_what_is_too_large_is_left_to_spark(warehouse: Warehouse, most: int) -> None:
    """Too many runs, known from the log; or too many positions."""
    with pytest.raises(NotInDriver):
        in_the_driver(warehouse, most)


class Log:
    """A log of one file."""

    def __init__(self, path: Path) -> None:
        """It is there already."""
        self._path = str(path)

    @classmethod
    def of(cls, path: Path, rows: pa.Table, *, repeated: bool = False) -> Log:
        """Write the file."""
        pq.write_table(rows, path, use_dictionary=["payload"] if repeated else False)
        return cls(path)

    def files(self, _: object) -> list[str]:
        """As `MessageLog.files`."""
        return [self._path]

    def readable_paths(self, files: list[str]) -> list[str]:
        """As `MessageLog.readable_paths`."""
        return files


@pytest.mark.parametrize(("most", "here"), [(1, False), (10, True)])
def test_too_many_bytes_beside_payloads_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, *, here: bool
) -> None:
    """Texts of messages may be of any size: they stay in their files. What orders them has to be held."""
    monkeypatch.setattr("pipeline.config.settings._ROW_BYTES", most)
    rows = arrow_messages(*({"entry_id": n, "payload": bytearray(b"%1000d" % n)} for n in range(20)))
    wanted = runs(spark, *({"subscription": f"s{n}", "first_entry": 0, "last_entry": 19} for n in range(5))).toArrow()
    lives = {("t", f"s{n}"): 1 for n in range(5)}
    with nullcontext() if here else pytest.raises(NotInDriver):
        log = cast("MessageLog", Log.of(tmp_path / "file.parquet", rows))
        # Nothing comes again: nobody asks what is closed.
        LocalRelease.of(wanted, lives, log, Settings(driver_rows=1_000), cast("Closed", None))


@pytest.mark.parametrize("repeated", [True, False])
def test_equal_payloads_are_counted_as_often_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, repeated: bool
) -> None:
    """A small file may hold more than the machine: a dictionary has each of them once. Rows come a few at a time."""
    monkeypatch.setattr("pipeline.storage.parquet._READ_BYTES", 5_000)
    count = 300
    rows = arrow_messages(*({"entry_id": n, "payload": bytearray(b"x" * 1_000)} for n in range(count)))
    log = Log.of(tmp_path / "file.parquet", rows, repeated=repeated)
    groups = message_groups(cast("MessageLog", log), Bounds())
    group = next(groups)
    assert group.step == 4
    wanted = np.arange(1, count, 2)
    pieces = list(group.take(("entry_id", "payload"), wanted))
    assert max(piece.num_rows for piece in pieces) <= group.step
    taken = pa.concat_tables(pieces)
    assert taken.column("entry_id").to_pylist() == wanted.tolist()
    assert set(taken.column("payload").to_pylist()) == {b"x" * 1_000}
    with pytest.raises(NotInDriver):
        whole(MESSAGES, log.readable_paths(log.files(None)), 10_000)
    assert whole(MESSAGES, log.readable_paths(log.files(None)), 1 << 20).num_rows == count


@pytest.mark.parametrize(
    ("written", "found"),
    [({}, [1, 2]), ({"write_statistics": False}, [0, 1, 2, 3]), ({"coerce_timestamps": "ms"}, [0, 1, 2, 3])],
    ids=["microseconds", "no statistics", "milliseconds"],
)
def test_row_groups_that_hold_nothing_of_it_are_passed_over(
    tmp_path: Path, written: dict[str, Any], found: list[int]
) -> None:
    """A file with a million messages may hold ten that are due. One that says nothing we know may hold anything."""
    rows = arrow_messages(*({"entry_id": n, "due_time": T0 + n} for n in range(40)))
    path = tmp_path / "file.parquet"
    pq.write_table(rows, path, row_group_size=10, **written)

    def groups(**bounds: int) -> list[int]:
        log = cast("MessageLog", Log(path))
        return [group.number for group in message_groups(log, Bounds(**bounds))]

    assert groups(first_due=T0 + 19, last_due=T0 + 20) == found
    assert groups() == [0, 1, 2, 3]
    ledger = rows.column("ledger_id")[0].as_py()
    assert groups(first_ledger=ledger + 1) == ([] if len(found) == 2 else found)


@pytest.mark.parametrize(
    ("begin", "end", "count"),
    [((0, -1), (3, -1), 61), ((1, -1), (2, -1), 1), ((1, 0), (2, 0), 60), ((2, 0), (3, -1), 0), ((1, -1), (1, 0), 1)],
)
def test_a_batch_takes_the_files_between_its_ends(
    warehouse: Warehouse, begin: tuple[int, int], end: tuple[int, int], count: int
) -> None:
    """By version, and by the place of a file in it."""
    rows = local_runs(warehouse, Position(EPOCH, *begin), Position(EPOCH, *end), Settings())
    assert rows.num_rows == count
    assert rows.schema == arrow_schema(REDELIVERY.schema)

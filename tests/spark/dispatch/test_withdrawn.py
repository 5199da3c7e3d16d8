"""What is withdrawn is left out by Spark as by arrays, and said with the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.client.create import create_all
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch import release_spark, withdrawnlog
from pipeline.dispatch.core.withdrawn import Withdrawn
from pipeline.dispatch.withdrawnlog import WithdrawnLog
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from pipeline.subscriptions.commandlog import Commanded, CommandLog
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import COMMANDS, REDELIVERY
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round, Span
from tests.support.client import at, put
from tests.support.rows import T0, runs

KEYS = ("topic", "subscription", "life", "redelivery_count", "ledger_id")


def singles(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Every position of runs, with its key and when it is due."""
    return sorted(
        (*(row[name] for name in KEYS), entry, row["due_time"])
        for row in rows.to_pylist()
        for entry in range(row["first_entry"], row["last_entry"] + 1)
    )


def test_spark_parts_runs_as_arrays_do(spark: SparkSession) -> None:
    """Position by position, of each round and life for itself; both say the same rows of what they leave out."""
    draw = random.Random(20_261_125)  # noqa: S311 - not a secret
    batch = []
    for _ in range(400):
        first, count = draw.randrange(100), draw.randrange(2)
        named = {"subscription": draw.choice("sz"), "life": draw.choice([1, 2]), "ledger_id": draw.choice([3, 5, 8])}
        run: dict[str, int | None] = {
            "first_entry": first,
            "last_entry": first + draw.choice([0, 1, 9]),
            "redelivery_count": count,
        }
        run |= {"round": draw.choice([None, count, count + 1, count + 2])}
        batch.append({"topic": "t", **named, **run, "due_time": T0 + first})
    frame = runs(spark, *batch)
    arrays = frame.toArrow().select(REDELIVERY.schema.names).cast(arrow_schema(REDELIVERY.columns))
    parts = {
        Span(Round("t", name, 2, 0), 0, end, moved): PositionSet.of(Positions.of_runs([(ledger, *run)]))
        for name, ledger, end, moved, run in (
            ("s", 3, 9, False, (10, 40)),
            ("s", 3, 2, True, (30, 70)),
            ("z", 5, 1, True, (60, 61)),
            ("nobody", 8, 9, False, (1, 2)),
        )
    }
    left_out = Withdrawn(4, parts)
    left, gone = left_out.split_withdrawn(arrays)
    by_spark = release_spark.split_withdrawn(frame, left_out.rows())
    for mine, other in zip((left, gone), by_spark, strict=True):
        assert singles(mine) == singles(other.toArrow())
    assert 0 < gone.num_rows < arrays.num_rows
    refused = [withdrawnlog.withdrawn_rows(gone, 7, 10_000), release_spark.withdrawn_rows(by_spark[1], 7).toArrow()]
    refused[1] = refused[1].cast(refused[0].schema)
    ours, theirs = (sorted(map(str, each.to_pylist())) for each in refused)
    assert ours == theirs
    assert {row["reason"] for row in refused[0].to_pylist()} == {"cancelled", "rescheduled"}
    assert {row["round"] for row in refused[0].to_pylist() if row["reason"] == "rescheduled"} == {None, 0, 1}


def cancelled(ledger: int, due: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of columns
    """A row of `commands` for the first entry of a ledger."""
    of = {"topic": "t", "subscription": "s", "life": 1, "redelivery_count": 0, "first_entry": 0, "last_entry": 0}
    return {"kind": "cancel", "command_id": "c", "ledger_id": ledger, "due_time": at(due), **of, **more}


def test_rows_that_come_are_told_apart_from_those_that_were_there(spark: SparkSession, tmp_path: Path) -> None:
    """Who follows millions of commanded positions takes in a new command for what it is."""
    warehouse = Warehouse(str(tmp_path), spark)
    create_all(warehouse.root)
    log = CommandLog(warehouse)

    def ledgers(seen: Commanded) -> tuple[list[int], bool]:
        return sorted(seen.rows.column("ledger_id").to_pylist()), seen.anew

    assert ledgers(log.look()) == ([], True)
    put(warehouse.root, COMMANDS, cancelled(3, T0), cancelled(4, T0))
    assert ledgers(log.look()) == ([3, 4], True)
    put(warehouse.root, COMMANDS, cancelled(5, T0))
    assert ledgers(log.look()) == ([5], False)
    open_table(warehouse.root, COMMANDS).optimize.compact()
    assert ledgers(log.look()) == ([3, 4, 5], True)
    put(warehouse.root, COMMANDS, cancelled(6, T0))
    log.forget()
    assert ledgers(log.look()) == ([3, 4, 5, 6], True)


def test_the_log_of_commands_is_followed_and_what_is_below_the_mark_is_not_held(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each file is read once, whatever maintenance makes of it; what is settled takes no memory, however long it stays.

    A row that cannot be followed changes nothing.
    """
    warehouse = Warehouse(str(tmp_path), spark)
    create_all(warehouse.root)
    log = WithdrawnLog(warehouse)
    assert log.look() == Withdrawn(0)
    put(warehouse.root, COMMANDS, cancelled(3, T0), cancelled(4, T0 + 9), cancelled(5, T0, last_entry=None))
    held = log.look()
    assert {ledger for each in held.parts.values() for ledger, _ in each.by_ledger()} == {3, 4}
    assert log.look() is held
    put(warehouse.root, COMMANDS, cancelled(6, T0 + 9), cancelled(4, T0 + 9, kind="undo", command_id="u", undoes="c"))
    assert {ledger for each in log.look().parts.values() for ledger, _ in each.by_ledger()} == {3, 6}
    open_table(warehouse.root, COMMANDS).optimize.compact()
    assert log.look().version == 3
    assert {ledger for each in log.look().parts.values() for ledger, _ in each.by_ledger()} == {3, 6}
    raise_to(Files(), warehouse.root, SettledMark(T0, 6, 1))
    put(warehouse.root, COMMANDS, cancelled(7, T0))
    for each in (log, WithdrawnLog(warehouse)):
        assert {ledger for of in each.look().parts.values() for ledger, _ in of.by_ledger()} == {6, 7}

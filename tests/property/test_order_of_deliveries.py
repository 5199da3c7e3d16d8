"""Whoever reads files of `deliveries` gets rows in one order, however they are cut, overlap, or were merged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import DeltaTable

from pipeline.client.clock import Clock, Pace
from pipeline.client.consuming.backlog import Backlog, open_rows
from pipeline.client.consuming.slotfetcher import Logs, SlotFetcher
from pipeline.client.tables.datarows import LIGHT, ORDER, READ
from pipeline.client.tables.deliveries import Deliveries
from pipeline.client.tables.deliveryset import NO_SLOT, DeliverySet
from pipeline.client.tables.logs import ClosedLog
from pipeline.client.tables.rows import Rows, slot_rule
from pipeline.client.tables.tail import DeliveryLog
from pipeline.delta.deltars import path_of, rows_of
from pipeline.storage.files import Files
from schemas import DELIVERIES
from state import SubscriptionType
from tests.support.client import at, delivery_row, empty_warehouse, message_row

KEY, SLOTS = ("t", "s", 1), 4
Row = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """Versions of `deliveries`, each of files with rows; and which files of all maintenance merges, in which order."""

    versions: list[list[list[Row]]]
    merged: list[list[int]]
    open: set[int]
    step: int
    group: int
    statistics: bool

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for files in self.versions for rows in files for row in rows]


@st.composite
def worlds(draw: st.DrawFn) -> Drawn:
    """Batches with rows of any due times, cut into files; files of several batches become visible together."""
    files: list[list[Row]] = []
    entries = iter(range(1_000_000))
    for batch in range(draw(st.integers(1, 5))):
        dues = sorted(draw(st.lists(st.integers(0, 12), min_size=1, max_size=12)))
        who = draw(st.lists(st.sampled_from("ssz"), min_size=len(dues), max_size=len(dues)))
        rows = [
            delivery_row(message_row(1, next(entries), due * 1_000), place, subscription=name)
            | {"batch_id": batch % 3, "released_at": at(60_000 + batch), "message_key": f"k{place % 5}"}
            for place, (due, name) in enumerate(zip(dues, who, strict=True), 1)
        ]
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(rows) - 1)), max_size=3)))
        files += [part for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True) if (part := rows[low:high])]
    files = draw(st.permutations(files))
    ends = sorted(draw(st.sets(st.integers(1, len(files)), max_size=3)) | {len(files)})
    versions = [files[low:high] for low, high in zip([0, *ends], ends, strict=False)]
    numbers = draw(st.permutations(range(len(files))))
    some = draw(st.integers(0, len(numbers)))
    merged = [each for each in (numbers[:some], numbers[some : some + draw(st.integers(0, 9))]) if len(each) > 1]
    every = [row["entry_id"] for each in files for row in each]
    open_ = draw(st.sets(st.sampled_from(every)))
    return Drawn(versions, merged, open_, draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.booleans()))


class Written:
    """The table of a drawn world in a folder."""

    def __init__(self, root: Path, world: Drawn) -> None:
        """Write all versions, and then what maintenance makes of their files."""
        self.root, self._world = str(root), world
        self._folder = Path(path_of(self.root, DELIVERIES))
        copytree(path_of(empty_warehouse(), DELIVERIES), self._folder)
        files = [rows for version in world.versions for rows in version]
        names = iter(range(len(files)))
        for number, version in enumerate(world.versions, 1):
            self._commit(number, [self._add(f"file-{next(names)}", rows) for rows in version])
        self.last = len(world.versions)
        for each in world.merged:
            self.last += 1
            gone = [{"remove": {"path": f"file-{n}.parquet", "dataChange": False}} for n in each]
            merged = self._add(f"merged-{self.last}", [row for n in each for row in files[n]], news=False)
            self._commit(self.last, [*gone, merged])

    def _add(self, name: str, rows: list[Row], *, news: bool = True) -> Row:
        path = self._folder / f"{name}.parquet"
        table = rows_of(DELIVERIES, rows)
        pq.write_table(pa.table(table), path, row_group_size=self._world.group)
        statistics: Row = {"numRecords": len(rows)}
        if self._world.statistics:
            names = (*ORDER, "topic", "subscription", "life")
            statistics["minValues"] = {name: _text(min(row[name] for row in rows)) for name in names}
            statistics["maxValues"] = {name: _text(max(row[name] for row in rows)) for name in names}
        add = {"path": path.name, "size": path.stat().st_size, "partitionValues": {}, "modificationTime": 0}
        return {"add": {**add, "dataChange": news, "stats": json.dumps(statistics)}}

    def _commit(self, number: int, actions: list[Row]) -> None:
        log = self._folder / "_delta_log" / f"{number:020d}.json"
        log.write_text("\n".join(json.dumps(each) for each in [{"commitInfo": {"timestamp": 90_000}}, *actions]))

    def cut(self) -> None:
        """Cut the log, so that what it said is read from the table."""
        DeltaTable(str(self._folder), version=self.last).create_checkpoint()
        for number in range(self.last):
            (self._folder / "_delta_log" / f"{number:020d}.json").unlink()


def _text(value: object) -> object:
    return value.isoformat() if hasattr(value, "isoformat") else value


def ordered(rows: list[Row]) -> list[int]:
    """The entries of rows in the order of deliveries."""
    return [row["entry_id"] for row in sorted(rows, key=lambda row: tuple(row[name] for name in ORDER))]


def entries(parts: Iterator[Rows]) -> list[int]:
    """Those of rows, as they come."""
    return [entry for rows in parts for entry in rows.entries.tolist()]


def one_by_one(versions: list[list[Row]]) -> list[int]:
    """The same, version after version."""
    return [entry for rows in versions for entry in ordered(rows)]


def backlog(version: int, slots: set[int], rows: Iterator[Rows] | None = None) -> Backlog:
    """Slots that were just taken."""
    found = Backlog(slots, version, 0, 0, {}, announces=False, mark=0, exclude=DeliverySet())
    if rows is not None:
        found.read(rows)
    return found


def open_entries(log: DeliveryLog, version: int, still_open: set[int], columns: Sequence[str]) -> list[int]:
    """What a consumer reads of the table that takes all slots, of what is open."""
    found = backlog(version, set(range(SLOTS)))
    found.still_open.put(1, NO_SLOT, 0, BitMap(still_open))
    return entries(open_rows(log, KEY, slot_rule(SubscriptionType.KEY_SHARED, SLOTS), found, columns))


def followed(log: DeliveryLog, slots: set[int]) -> list[int]:
    """What a consumer gets that has slots from the first version on."""
    logs = SimpleNamespace(deliveries=log, closed=ClosedLog(empty_warehouse(), Files()), pace=Pace(Clock()))
    fetcher = SlotFetcher(cast("Logs", logs), KEY, SubscriptionType.KEY_SHARED, SLOTS)
    fetcher.add(backlog(0, slots, iter(())))
    found: list[int] = []
    while (rows := fetcher.next()[0]) is not None:
        found += rows.entries.tolist()
    return found


@settings(max_examples=15, deadline=None)
@given(world=worlds())
def test_every_reader_gets_rows_in_the_order_of_deliveries_each_once(world: Drawn) -> None:
    """A file whose first row was old was read before files that belong before its other rows: keys lost their order."""
    step = patch("pipeline.client.tables.datarows.step_of", lambda _: world.step)
    with TemporaryDirectory() as folder, step:
        table = Written(Path(folder), world)
        with patch("pipeline.client.tables.tail.newest", lambda *_: 0):
            log = DeliveryLog(folder, Files())
        log.read()
        versions = [[row for file in version for row in file] for version in world.versions]
        mine = [[row for row in rows if row["subscription"] == "s"] for rows in versions]
        assert [each.position[1] for each in Deliveries(folder).take()] == one_by_one(versions)
        taken = list(Deliveries(folder).take(subscription="s"))
        places = {entry: place for rows in versions for place, entry in enumerate(ordered(rows), 1)}
        assert [each.position[1] for each in taken] == one_by_one(mine)
        assert [each.order[1] for each in taken] == [places[each.position[1]] for each in taken]
        assert followed(log, set(range(SLOTS))) == one_by_one(mine)
        wanted = ordered([row for rows in mine for row in rows if row["entry_id"] in world.open])
        assert [open_entries(log, table.last, world.open, columns) for columns in (READ, LIGHT)] == [wanted, wanted]
        table.cut()
        assert [each.position[1] for each in Deliveries(folder).take()] == ordered(world.rows)


def test_a_file_that_was_read_whole_is_merged_with_others_of_which_little_is_read(tmp_path: Path) -> None:
    """Who takes over reads a backlog without payloads first; small files that others have read are kept with them."""
    same = {"batch_id": 0, "released_at": at(60_000)}
    rows = [delivery_row(message_row(1, n, n * 1_000), n + 1) | same for n in range(8)]
    kept, large = [row for n, row in enumerate(rows) if n in {1, 3, 5}], [rows[n] for n in (0, 2, 4, 6, 7)]
    table = Written(tmp_path, Drawn([[kept, large]], [], set(range(8)), step=5, group=3, statistics=True))
    with patch("pipeline.client.tables.tail.newest", lambda *_: 0):
        log = DeliveryLog(str(tmp_path), Files())
    log.read()
    assert open_entries(log, table.last, set(range(8)), READ) == [*range(8)]
    assert open_entries(log, table.last, set(range(8)), LIGHT) == [*range(8)]

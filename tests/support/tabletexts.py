"""What the tables of a warehouse say, so that two warehouses can be compared: rows as texts, runs by position."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.subscribing.lives import lives
from pipeline.delta.deltars import open_table
from pipeline.subscriptions.incarnations import alive
from pipeline.worker.encode import ARROW
from pipeline.worker.express import Express
from schemas import (
    CLOSED,
    CURSOR_HEAD,
    CURSORS,
    DELIVERIES,
    HELD,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SCHEDULE,
    REJECTED_SETTLE,
    REPLACED,
    SEGMENTS,
    Table,
)
from state import Condition, Outstanding
from tests.support.changed_minds import ms
from tests.support.drawnscripts import T0

COMPARED = (
    INBOX, MESSAGES, REPLACED, REJECTED_INGEST, SEGMENTS, REDELIVERY, REJECTED_SCHEDULE, HELD, DELIVERIES,
    REJECTED_DISPATCH, PUBLICATIONS, CLOSED, CURSORS, REJECTED_SETTLE,
)  # fmt: skip
_CLOCKS = ("committed_at", "job_started_at")
"""What the wall clock says."""
_WHO = ("topic", "subscription", "life")
_WITHDRAWN = f"condition={Condition.WITHDRAWN!r}"
RowTexts = dict[str, Counter[tuple[str, ...]]]
"""The rows of each table as texts; a run is a row for each position."""


def row_texts(root: str, but: Collection[str] = (), less: Collection[Table] = ()) -> RowTexts:
    """What the tables of a warehouse say, but for some columns and some tables."""
    return {table.name: texts_of(root, table, but) for table in COMPARED if table not in less}


def of_present_lives(root: str, texts: RowTexts) -> RowTexts:
    """Less what is said of lives that are over, and of rounds that will not come."""
    present = {
        frozenset({f"topic={topic!r}", f"subscription={name!r}", f"life={life.number}"})
        for (topic, name), life in alive(lives(root)).items()
    }

    def counts(row: tuple[str, ...]) -> bool:
        who = frozenset(each for each in row if each.startswith(("topic=", "subscription=", "life=")))
        return _WITHDRAWN not in row and (len(who) < len(_WHO) or who in present)

    return {table: Counter({row: n for row, n in rows.items() if counts(row)}) for table, rows in texts.items()}


def texts_of(root: str, table: Table, but: Collection[str] = ()) -> Counter[tuple[str, ...]]:
    """The rows of a table as texts, less some columns."""
    opened = open_table(root, table).to_pyarrow_table()
    read = {SEGMENTS.name: _addressed, CURSORS.name: _open}.get(table.name, pa.Table.to_pylist)
    left = {"chunk", *_CLOCKS, *but}
    return Counter(each for row in read(opened) for each in _singles(row, left))


def _addressed(segments: pa.Table) -> list[dict[str, Any]]:
    """What the rows of `segments` address, however it is encoded; and the rows that address nothing."""
    is_chunk = segments.column("chunk").is_valid()
    found: list[dict[str, Any]] = segments.filter(pc.invert(is_chunk)).to_pylist()
    for batch in Express(0, 0)(iter(segments.select(ARROW.names).cast(ARROW).filter(is_chunk).to_batches())):
        found += ({**row, "released_at": None} for row in batch.to_pylist())
    return found


def _open(cursors: pa.Table) -> list[dict[str, Any]]:
    """What settle knows of the positions of each incarnation; the newest row of each block counts."""
    newest: defaultdict[tuple[Any, ...], dict[int, bytes | None]] = defaultdict(dict)
    for row in sorted(cursors.to_pylist(), key=lambda row: row["batch_id"]):
        newest[tuple(row[name] for name in _WHO)][row["block"]] = row["bytes"]
    found = list[dict[str, Any]]()
    for who, blocks in newest.items():
        data = {block: each for block, each in blocks.items() if each is not None}
        if CURSOR_HEAD not in data:
            continue
        state = Outstanding.restore(data[CURSOR_HEAD], {block: each for block, each in data.items() if block >= 0})
        for held in state.held(*Condition):
            of = {**dict(zip(_WHO, who, strict=True)), **held.cell._asdict()}
            runs = held.positions.runs()
            found += [{**of, "ledger_id": run[0], "first_entry": run[1], "last_entry": run[2]} for run in runs]
    return found


def _singles(row: dict[str, Any], but: Collection[str]) -> Iterator[tuple[str, ...]]:
    row = {name: value for name, value in row.items() if name not in but}
    first, last = row.pop("first_entry", 0), row.pop("last_entry", 0)
    texts = tuple(f"{name}={_text(value)}" for name, value in sorted(row.items()) if value is not None)
    yield from ((f"entry={entry}", *texts) for entry in range(first or 0, (last or 0) + 1))


def _text(value: object) -> str:
    """A value; a time as ms since the beginning."""
    return str(ms(value) - T0) if isinstance(value, datetime) else repr(value)

"""What is pending, counted from the tables alone, while the job runs.

Pending for a subscription is what ingest accepted for it less what dispatch delivered to it:

- accepted: the rows of `messages` of its topic, from the first ledger that ingest noted for it in the marker rows of
  `segments`. A subscription that ingest has not noticed yet has all of them (`earliest`) or none (`latest`).
- delivered: its rows in `deliveries` from that ledger on and of its present life, with `redelivery_count` 0.
- What commands withdraw is left out on both sides, whether it was too late for that or not.

Both sides are counted by minute of due time and subtracted, so no join of positions is needed: memory grows with the
minutes that have something pending, time with the rows of both tables, of which three narrow columns are read.
`deliveries` is opened before `messages`, so nothing is delivered in the one and unknown in the other. What retention
may delete from `messages` is below a mark that is read last (`pipeline.subscriptions.settled`): it is delivered, and
left out on both sides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from pipeline.client.commanding.inforce import in_force
from pipeline.client.subscribing.subscriptions import Subscription, lives, subscriptions
from pipeline.config.stages import INGEST
from pipeline.delta.deltars import open_table, path_of, query, quoted
from pipeline.delta.logs.entries import between, commits, metadata
from pipeline.delta.logs.filestats import count
from pipeline.delta.logs.logfiles import first_version, log_files
from pipeline.delta.logs.notes import Commit
from pipeline.delta.offsets import EVERYTHING_BEFORE, Offset
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from pipeline.subscriptions.settled import SettledMark, read_mark
from pipeline.subscriptions.sought import Sought
from schemas import DELIVERIES, INBOX, MESSAGES, REJECTED_INGEST, SEGMENTS, Table

MINUTE_MS = 60_000
_Row: TypeAlias = tuple[str, str, *tuple[int, ...]]
"""Topic, subscription and numbers."""
_WITHDRAWN = pa.schema(
    [("topic", pa.string()), ("subscription", pa.string()), ("ledger_id", pa.int64()), ("entry_id", pa.int64())]
)
_SPELLED_OUT = 1_000
"""So many listeners are named in a query."""

# Due times as ingest computes them: the later of delivery and publication, rounded up to ms, not before 1970.
_DUE = "GREATEST(0, (COALESCE({deliver_at}, {publish_time}) + 999) / 1000, ({publish_time} + 999) / 1000)"
_CHANGES = """
    SELECT s.topic, s.subscription, m.due_ms, 1 AS change
    FROM (SELECT topic, ledger_id, entry_id, arrow_cast(due_time, 'Int64') / 1000 AS due_ms FROM messages) m
    JOIN ({listeners}) s ON m.topic = s.topic AND m.ledger_id >= s.first_ledger {less_accepted}
    WHERE (m.ledger_id > s.first_ledger OR m.entry_id >= s.first_entry)
    AND NOT (m.due_ms <= {settled_ms} AND m.ledger_id < {settled_ledger})
    UNION ALL
    SELECT s.topic, s.subscription, d.due_ms, -1 AS change
    FROM (
        SELECT topic, subscription, life, ledger_id, entry_id, {due} AS due_ms
        FROM deliveries WHERE redelivery_count = 0
    ) d
    JOIN ({listeners}) s
    ON d.topic = s.topic AND d.subscription = s.subscription AND d.life = s.life AND d.ledger_id >= s.first_ledger
    {less_delivered}
    WHERE NOT (d.due_ms <= {settled_ms} AND d.ledger_id < {settled_ledger})
"""
_LESS = """
    LEFT ANTI JOIN ({withdrawn}) w ON w.topic = s.topic AND w.subscription = s.subscription
    AND w.ledger_id = {rows}.ledger_id AND w.entry_id = {rows}.entry_id
"""
_MINUTES = """
    SELECT topic, subscription, due_ms / 60000 AS minute, SUM(change) AS messages
    FROM ({changes}) GROUP BY 1, 2, 3 HAVING SUM(change) > 0 ORDER BY 1, 2, 3
"""
_NEXT = """
    SELECT topic, subscription, MIN(due_ms) AS due_ms FROM (
        SELECT c.topic, c.subscription, c.due_ms
        FROM ({changes}) c JOIN ({firsts}) f
        ON c.topic = f.topic AND c.subscription = f.subscription AND c.due_ms / 60000 = f.minute
        GROUP BY 1, 2, 3 HAVING SUM(c.change) > 0
    ) GROUP BY 1, 2
"""


@dataclass(frozen=True)
class Backlog:
    """What is pending for one subscription.

    Attributes:
        topic: its topic.
        subscription: its name.
        count: messages accepted for it and not yet delivered.
        next_due: when the first of them is due, ms UTC; None: nothing is pending.
        minutes: how many are due in each minute, by the minute's start in ms UTC, ascending; empty ones left out.
    """

    topic: str
    subscription: str
    count: int
    next_due: int | None
    minutes: Mapping[int, int]


@dataclass(frozen=True)
class Pending:
    """What is pending in a warehouse.

    Attributes:
        backlogs: one for each active subscription, by topic and name.
        in_inbox: rows of the inbox that ingest has neither accepted nor rejected yet.
        versions: the versions of the tables that were counted.
    """

    backlogs: tuple[Backlog, ...]
    in_inbox: int
    versions: Mapping[str, int]


def pending(root: str, topic: str | None = None, subscription: str | None = None) -> Pending:
    """Count what is pending, of one topic or subscription when named.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    deliveries, messages = open_table(root, DELIVERIES), open_table(root, MESSAGES)
    lines = [each for each in subscriptions(root) if topic in (None, each.topic) and subscription in (None, each.name)]
    versions = {DELIVERIES.name: deliveries.version(), MESSAGES.name: messages.version()}
    since = _since(root, lines)
    withdrawn = _withdrawn(root, since)
    backlogs = tuple(_backlogs(deliveries, messages, since, withdrawn, read_mark(Files(), root)))
    return Pending(backlogs, in_inbox(root), versions)


def in_inbox(root: str) -> int:
    """How many rows of the inbox ingest has neither accepted nor rejected yet, counted from logs alone.

    Retention deletes rows of the inbox, of `messages` and of rejected ones, each at its own time, so their numbers say
    nothing about each other. But each commit of ingest notes the place up to which it has taken the inbox, and the log
    of the inbox reaches back to it.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    files, path = Files(), path_of(root, INBOX)
    return sum(_rows(files, path, file) for file in untaken(root))


def untaken(root: str) -> list[dict[str, Any]]:
    """The files of the inbox that ingest has not taken yet, as the log has them, with `path` decoded.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The place first: what is taken meanwhile was in the inbox before.
    files, path = Files(), path_of(root, INBOX)
    begin = max(_taken(files, root, table) for table in (MESSAGES, REJECTED_INGEST, SEGMENTS))
    end = open_table(root, INBOX).version() + 1, EVERYTHING_BEFORE
    found = between(files, path, begin, end)
    if found is None:
        # Somebody cut the log behind the place: what is left of it is counted.
        first = first_version(log_files(files.names(f"{path}/_delta_log")))
        found = between(files, path, max(begin, (first, EVERYTHING_BEFORE)), end)
    return found or []


def _taken(files: Files, root: str, table: Table) -> Offset:
    """The place in the last note of ingest on a table; before everything when there is none."""
    for actions in commits(files, path_of(root, table), open_table(root, table).version()):
        note = Commit.loads(metadata(actions))
        if note is not None and note.stage == INGEST:
            return note.note["source"][0], note.note["source"][1]
    return 0, EVERYTHING_BEFORE


def _rows(files: Files, path: str, added: Mapping[str, Any]) -> int:
    """The rows of a file by its statistics, or by its footer when its writer left them out; 0 when it is gone."""
    known = count(added.get("stats"))
    if known is None:
        with suppress(FileNotFoundError), files.open(f"{path}/{added['path']}") as file:
            known = pq.read_metadata(file).num_rows
    return known or 0


def _since(root: str, lines: Iterable[Subscription]) -> dict[Name, Incarnation | None]:
    """The life of each listener; None: it gets none of the ledgers there are."""
    known = alive(lives(root))
    return {(each.topic, each.name): _life(each, known.get((each.topic, each.name))) for each in lines}


def _life(line: Subscription, known: Incarnation | None) -> Incarnation | None:
    """The life of a listener that is known; else, or when a seek asks for another one, the one that ingest begins."""
    sought = Sought.of_text(line.start)
    if sought is not None and (known is None or sought.life > known.number):
        return Incarnation(sought.life, sought.ledger, line.tick_ms, sought.entry)
    return Incarnation(0, 0, line.tick_ms) if known is None and line.start == "earliest" else known


def _withdrawn(root: str, since: Mapping[Name, Incarnation | None]) -> pa.Table:
    """Topic, subscription, ledger and entry of what commands withdraw of the first deliveries to present lives."""
    lives = {name: life.number for name, life in since.items() if life is not None}
    # PyArrow imports pandas for an empty table of its own making, and for each array of NumPy.
    pieces = [pa.Table.from_batches([], _WITHDRAWN)]
    for of, positions in in_force(root).items():
        if of.redelivery_count == 0 and lives.get((of.topic, of.subscription)) == of.life:
            for ledger, entries in positions.by_ledger():
                own = np.asarray(entries.to_array(), np.int64)
                entry = pa.Array.from_buffers(pa.int64(), len(own), [None, pa.py_buffer(own)])
                same = [pa.repeat(value, len(own)) for value in (of.topic, of.subscription, ledger)]
                pieces.append(pa.Table.from_arrays([*same, entry], schema=_WITHDRAWN))
    return pa.concat_tables(pieces)


def _backlogs(
    deliveries: DeltaTable,
    messages: DeltaTable,
    since: Mapping[Name, Incarnation | None],
    withdrawn: pa.Table,
    settled: SettledMark,
) -> Iterator[Backlog]:
    counted = {name: life for name, life in since.items() if life is not None}
    minutes: dict[Name, dict[int, int]] = {}
    due: dict[Name, int] = {}
    if counted:
        rows = [(*name, life.since or 0, life.entry, life.number) for name, life in sorted(counted.items())]
        with (
            _relation("listeners", rows, "first_ledger", "first_entry", "life") as (listeners, more),
            relation("withdrawn", withdrawn) as (less, others),
        ):
            tables = {"deliveries": deliveries, "messages": messages, **more, **others}
            changes = _changes(listeners, less if withdrawn.num_rows else None, settled)
            minutes = _minutes(tables, changes)
            due = _next(tables, changes, minutes)
    for name in sorted(since):
        mine = minutes.get(name, {})
        yield Backlog(*name, sum(mine.values()), due.get(name), mine)


def _changes(listeners: str, withdrawn: str | None, settled: SettledMark) -> str:
    micros = {column: f"arrow_cast({column}, 'Int64')" for column in ("deliver_at", "publish_time")}
    return _CHANGES.format(
        listeners=listeners,
        less_accepted="" if withdrawn is None else _LESS.format(withdrawn=withdrawn, rows="m"),
        less_delivered="" if withdrawn is None else _LESS.format(withdrawn=withdrawn, rows="d"),
        due=_DUE.format(**micros),
        settled_ms=settled.due_ms,
        settled_ledger=settled.ledger,
    )


def _minutes(tables: Mapping[str, DeltaTable], changes: str) -> dict[Name, dict[int, int]]:
    found: dict[Name, dict[int, int]] = {}
    for row in query(_MINUTES.format(changes=changes), **tables):
        found.setdefault((row["topic"], row["subscription"]), {})[row["minute"] * MINUTE_MS] = row["messages"]
    return found


def _next(tables: Mapping[str, DeltaTable], changes: str, minutes: Mapping[Name, Mapping[int, int]]) -> dict[Name, int]:
    """The first due time to the millisecond: the same subtraction, within the first minute of each subscription."""
    if not minutes:
        return {}
    with _relation("firsts", [(*name, min(each) // MINUTE_MS) for name, each in minutes.items()], "minute") as (
        firsts,
        more,
    ):
        text = _NEXT.format(changes=changes, firsts=firsts)
        return {(row["topic"], row["subscription"]): row["due_ms"] for row in query(text, **tables, **more)}


@contextmanager
def _relation(name: str, rows: Sequence[_Row], *numbers: str) -> Iterator[tuple[str, dict[str, DeltaTable]]]:
    """Rows as a subquery, and the tables that it reads; `numbers` names the columns after topic and subscription."""
    names = ("topic", "subscription", *numbers)
    types = [pa.string(), pa.string(), *(pa.int64() for _ in numbers)]
    columns = [pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), types, strict=True)]
    with relation(name, pa.Table.from_arrays(columns, names=names)) as found:
        yield found


@contextmanager
def relation(name: str, rows: pa.Table) -> Iterator[tuple[str, dict[str, DeltaTable]]]:
    """Rows as a subquery, and the tables that it reads: topic and subscription come first, the others are numbers.

    Few rows are spelled out. Of many the parser would take 25 kB each, so they are a table in a folder for temporary
    files.
    """
    if rows.num_rows <= _SPELLED_OUT:
        told = zip(*(rows.column(each).to_pylist() for each in rows.column_names), strict=True)
        yield _values(list(told), rows.column_names), {}
        return
    with TemporaryDirectory() as folder:
        write_deltalake(folder, rows)
        yield f"SELECT * FROM {name}", {name: DeltaTable(folder)}  # noqa: S608 - our own word


def _values(rows: Sequence[_Row], names: Sequence[str]) -> str:
    """Rows as a subquery, with names quoted."""
    lines = ", ".join(f"({quoted(topic)}, {quoted(name)}, {', '.join(map(str, rest))})" for topic, name, *rest in rows)
    named = (f"column{place} AS {name}" for place, name in enumerate(names, 1))
    return f"SELECT {', '.join(named)} FROM (VALUES {lines})"  # noqa: S608 - quoted

"""What the tables say of messages at some positions, by position: rows, read in the order in which they are decided.

Commands are read before releases, and releases before what became of them. So what is commanded and not released will
not be delivered, and what is released was decided before, or is being decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.commanding.chosen import Chosen
from pipeline.client.commanding.inforce import moved as moved_by
from pipeline.client.commanding.inforce import rows as commands
from pipeline.client.consuming.events import ACK, NACK
from pipeline.client.reading.published import published
from pipeline.client.tracing.places import Position, named
from pipeline.client.tracing.step import Fact, Step, ms_of
from pipeline.delta.deltars import open_table, query, quoted
from pipeline.storage.arrays import python_rows
from pipeline.subscriptions.commands import READ, withdrawals, wrong
from schemas import CLOSED, CONSUMER_EVENTS, DELIVERIES, PUBLICATIONS, REDELIVERY, REJECTED_DISPATCH, Table
from state.withdrawals import Parts, Round

Row = Mapping[str, Any]
_SAID = ("asked", "issued_by", "reason", "at")
_OF = "subscription, life, redelivery_count"
_RUN = ("first_entry", "last_entry")
_RELEASED = f"ledger_id, first_entry, last_entry, {_OF}, due_time, released_at, cause"
_LEFT_OUT = f"ledger_id, entry_id, {_OF}, rejected_at, reason"
_DELIVERED = f"ledger_id, entry_id, {_OF}, due_time, released_at, cause, batch_id, topic"
_CLOSED = f"ledger_id, first_entry, last_entry, {_OF}, closed_at, cause"
_EVENTS = f"ledger_id, first_entry, last_entry, {_OF}, at, kind, consumer, cause, after_ms"


@dataclass(frozen=True)
class Facts:
    """What the tables say of some positions of a topic, of all subscriptions or of one.

    Attributes:
        commanded: rows of `commands` that name one of them.
        released: of `redelivery`.
        left_out: of `rejected_dispatch`.
        delivered: of `deliveries`, with `committed_at`.
        closed: of `closed`.
        said: acknowledgements and failures in `consumer_events`.
        releases: the version of `redelivery`.
    """

    commanded: pa.Table
    released: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    delivered: list[dict[str, Any]]
    closed: list[dict[str, Any]]
    said: list[dict[str, Any]]
    releases: int

    @property
    def in_force(self) -> Parts:
        """What commands withdraw."""
        return withdrawals(self.commanded.select(READ)).in_force() if self.commanded.num_rows else {}

    @property
    def moved(self) -> dict[Round, Chosen]:
        """What got another due time by commands."""
        return moved_by(self.commanded.select(READ)) if self.commanded.num_rows else {}

    def steps(self, place: Position) -> Iterator[Step]:
        """What happened to one of the positions, to each subscription; in no order."""
        yield from (_commanded(row) for row in _of(python_rows(self.commanded), place))
        yield from (_step("released", row, "due_time", "cause") for row in _of(self.released, place))
        yield from (_step("left_out", row, "rejected_at", "reason") for row in _of(self.left_out, place))
        yield from (_published(row) for row in _of(self.delivered, place))
        yield from (_step("closed", row, "closed_at", "cause") for row in _of(self.closed, place))
        for row in _of(self.said, place):
            yield _step(row["kind"], row, "at", "consumer", "cause", "after_ms")


def facts(root: str, topic: str, subscription: str | None, places: Sequence[Position]) -> Facts:
    """Read them.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    mine = f"topic = {quoted(topic)}"
    mine += "" if subscription is None else f" AND subscription = {quoted(subscription)}"
    one, run = (f"{mine} AND ({each})" for each in (named(places), named(places, *_RUN)))
    commanded = commands(root, (*READ, *_SAID), run)
    commanded = commanded.filter(pc.is_null(wrong(commanded.select(READ)))) if commanded.num_rows else commanded
    redelivery = open_table(root, REDELIVERY)
    released = query(f"SELECT {_RELEASED} FROM t WHERE {run}", t=redelivery)  # noqa: S608 - quoted
    left_out = _rows(root, REJECTED_DISPATCH, _LEFT_OUT, one)
    rows = f"SELECT {_DELIVERED} FROM deliveries WHERE {one}"  # noqa: S608 - quoted
    delivered = query(
        published(rows), deliveries=open_table(root, DELIVERIES), publications=open_table(root, PUBLICATIONS)
    )
    closed = _rows(root, CLOSED, _CLOSED, run)
    said = _rows(root, CONSUMER_EVENTS, _EVENTS, f"kind IN ('{ACK}', '{NACK}') AND {run}")
    return Facts(commanded, released, left_out, delivered, closed, said, redelivery.version())


def _rows(root: str, table: Table, columns: str, where: str) -> list[dict[str, Any]]:
    return query(f"SELECT {columns} FROM t WHERE {where}", t=open_table(root, table))  # noqa: S608 - quoted


def _of(rows: Sequence[Row], place: Position) -> Iterator[Row]:
    """Those of a position, which they name by itself or by a run of entries."""
    for row in rows:
        first, last = (row.get(name, row.get("entry_id")) for name in _RUN)
        if row["ledger_id"] == place[0] and first <= place[1] <= last:
            yield row


def _step(what: str, row: Row, at: str, *columns: str) -> Step:
    """A step; what is NULL is left out."""
    said = {name: row[name] for name in columns if row[name] is not None}
    return Step(what, ms_of(row[at]), row["subscription"], row["life"], row["redelivery_count"], said)


def _commanded(row: Row) -> Step:
    texts = {"command_id": row["command_id"], "undoes": row["undoes"], "by": row["issued_by"]}
    texts |= {"reason": row["reason"], "asked": row["asked"]}
    said: dict[str, Fact] = {name: text for name, text in texts.items() if text is not None}
    said |= {"due": ms_of(row["deliver_at"])} if row["round"] is not None else {}
    return Step(row["kind"], ms_of(row["at"]), row["subscription"], row["life"], row["redelivery_count"], said)


def _published(row: Row) -> Step:
    """Lateness counts from the bucket, as in the view `lateness`."""
    at, due = ms_of(row["committed_at"]), ms_of(row["due_time"])
    late = None if at is None or due is None else at - due
    details = {"due": due, "late_ms": late, "cause": row["cause"]}
    return Step("published", at, row["subscription"], row["life"], row["redelivery_count"], details)

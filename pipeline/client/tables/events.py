"""Rows of `consumer_events`: what a consumer says, as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.client.tables.rows import Key
from pipeline.delta.deltars import arrow_schema
from pipeline.storage.arrays import IntArray, completed
from schemas import CONSUMER_EVENTS
from state import LeaseRow, Positions

ACK, NACK = "ack", "nack"
ACK_TIMEOUT, OWNER_LOST = "ack_timeout", "owner_lost"
"""Causes of a nack, beside `nack` itself."""
_SCHEMA = arrow_schema(CONSUMER_EVENTS)


@dataclass(frozen=True)
class EventRows:
    """Who says something: a consumer of a subscription, in a session of it."""

    key: Key
    consumer: str
    session: int

    def acks(self, positions: Positions, at_ms: int, count: int | None = None) -> pa.Table:
        """These messages are done with; whoever says so had them with this redelivery count, or has them no more."""
        return self._runs(ACK, positions, at_ms, redelivery_count=count)

    def nacks(self, positions: Positions, count: int, after_ms: int | None, cause: str, at_ms: int) -> pa.Table:
        """These messages failed, in the round with this redelivery count; they come again after a delay."""
        return self._runs(NACK, positions, at_ms, redelivery_count=count, after_ms=after_ms, cause=cause)

    def leases(self, rows: Sequence[LeaseRow], at_ms: int) -> pa.Table:
        """What its lease says; each row names its own consumer and session."""
        names = ("consumer", "session", "counter", "slot", "handed", "priority", "lease_ms")
        said: dict[str, list[object]] = {name: [getattr(row, name) for row in rows] for name in names}
        return completed(_SCHEMA, said | {"kind": [str(row.kind) for row in rows]}, self._same(at_ms), len(rows))

    def _runs(self, kind: str, positions: Positions, at_ms: int, **more: int | str | None) -> pa.Table:
        runs = {
            "ledger_id": positions.ledger_ids,
            "first_entry": positions.first_entries,
            "last_entry": positions.last_entries,
        }
        said = {"kind": kind, "consumer": self.consumer, "session": self.session, **more}
        return completed(_SCHEMA, runs, self._same(at_ms) | said, len(positions))

    def _same(self, at_ms: int) -> dict[str, object]:
        """What is the same in all rows."""
        topic, subscription, life = self.key
        return {"topic": topic, "subscription": subscription, "life": life, "at": at_ms * 1_000}


def runs_of(ledgers: IntArray, entries: IntArray) -> Positions:
    """Positions in any order, some of them twice, as runs. O(n log n), O(n) when they are in order."""
    if len(ledgers) > 1:
        steps, ledger_steps = np.diff(entries), np.diff(ledgers)
        if not ((ledger_steps > 0) | ((ledger_steps == 0) & (steps > 0))).all():
            order = np.lexsort((entries, ledgers))
            ledgers, entries = ledgers[order], entries[order]
    ends = (np.diff(ledgers) != 0) | (np.diff(entries) > 1)
    firsts = np.flatnonzero(np.append(True, ends)) if len(ledgers) else np.zeros(0, np.int64)
    lasts = np.append(firsts[1:] - 1, len(ledgers) - 1) if len(ledgers) else firsts
    return Positions(ledgers[firsts], entries[firsts], entries[lasts])

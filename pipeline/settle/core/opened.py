"""What is open of one subscription, and who leases its slots: read from `cursors`, changed by a batch, written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.config.errors import CursorUnreadable
from pipeline.settle.core.listener import Listener
from pipeline.subscriptions.policies import Policies
from schemas import CURSOR_HEAD, CURSOR_LEASES
from state import Condition, CorruptBytes, LeaseReplay, Move, Outstanding
from state.lease_bytes import pack_leases, unpack_leases
from state.leases import LeaseRow
from state.outstanding import Cursor
from state.settling import Effect, Event
from state.units import EPOCH, Ms

Row = dict[str, Any]
"""A row of `cursors` by its columns, less those of the batch."""


class CursorState:
    """A subscription in its present incarnation: what is outstanding or waiting, and its leases."""

    def __init__(self, listener: Listener, outstanding: Outstanding, leases: LeaseReplay) -> None:
        """Begin with a state; `begun` and `restored` make one."""
        self.listener, self.outstanding, self.leases = listener, outstanding, leases
        self._written = leases.changes
        self._new = False
        self._replaced: frozenset[int] = frozenset()
        self.unreadable: CursorUnreadable | None = None

    @classmethod
    def begun(cls, listener: Listener, after: int, before: CursorState | None = None) -> CursorState:
        """Nothing is open: what version `after` of `redelivery` and those before it released counts as settled.

        Of what was open `before`, when it acknowledged, or did not, what got another due time still waits.
        """
        opened = cls(listener, Outstanding(after), LeaseReplay(listener.slots))
        opened._new = True
        if before is not None:
            opened._replaced = frozenset(row["block"] for row in before.all_rows())
            for held in before.outstanding.held(Condition.WAITING):
                _, number, count = held.cell
                if number > count:
                    opened.outstanding.handle(Move(held.positions, count, number, fresh=True), now=EPOCH)
        return opened

    @classmethod
    def restored(cls, listener: Listener, blocks: Mapping[int, bytes]) -> CursorState:
        """The state of which these are the newest rows of `cursors`, by their `block`.

        It is `unreadable` when they are not what settle wrote, and has nothing open then.
        """
        acks = CURSOR_LEASES in blocks
        if acks != listener.policies.ack:
            # It acknowledged, or did not, when this was written.
            listener = replace(listener, policies=Policies(ack=acks))
        try:
            leases = unpack_leases(blocks[CURSOR_LEASES]) if acks else LeaseReplay(listener.slots)
            own = {block: data for block, data in blocks.items() if block >= 0}
            return cls(listener, Outstanding.restore(blocks[CURSOR_HEAD], own), leases)
        except (CorruptBytes, KeyError) as error:
            torn = cls(listener, Outstanding(0), LeaseReplay(listener.slots))
            torn.unreadable, torn._replaced = CursorUnreadable(*listener.incarnation, str(error)), frozenset(blocks)
            return torn

    @property
    def acknowledges(self) -> bool:
        """Whether its consumers do; otherwise only what got another due time is held, until it is released."""
        return self.listener.policies.ack

    @property
    def moved(self) -> bool:
        """Whether something waits that got another due time. O(bytes) when something waits."""
        waiting = self.outstanding.held(Condition.WAITING) if self.outstanding.counts.waiting else ()
        return any(each.cell.round > each.cell.redelivery_count for each in waiting)

    def follow(self, listener: Listener) -> None:
        """Follow other policies from here on. Other slots are other shares: all leases begin anew."""
        if listener.slots != self.listener.slots:
            self.leases, self._written = LeaseReplay(listener.slots), -1
        self.listener = listener

    def handle(self, events: Sequence[Event], leases: Iterable[LeaseRow], now: Ms) -> list[Effect]:
        """Apply what happened, at an instant (ms UTC)."""
        self.leases.apply(leases)
        return self.outstanding.handle(*events, now=now, policy=self.listener.policies.retry) if events else []

    def changed_rows(self) -> list[Row]:
        """Rows of `cursors` for what has changed since `saved`."""
        cursor = self.outstanding.changes()
        leases = self._new or self.leases.changes != self._written
        return self._rows(cursor, head=self._new or bool(cursor.blocks), leases=leases)

    def all_rows(self) -> list[Row]:
        """Rows of `cursors` for all there is."""
        return self._rows(self.outstanding.snapshot(), head=True, leases=True)

    def gone_rows(self) -> list[Row]:
        """Rows of `cursors` that say that nothing of it counts any more."""
        own = self.outstanding
        blocks = {CURSOR_HEAD, CURSOR_LEASES, *own.snapshot().blocks, *own.changes().blocks, *self._replaced}
        return [self._row(block, None) for block in blocks]

    def saved(self) -> None:
        """Count changes from here on."""
        self.outstanding.saved()
        self._written, self._new, self._replaced = self.leases.changes, False, frozenset()

    def _rows(self, cursor: Cursor, *, head: bool, leases: bool) -> list[Row]:
        rows = [self._row(block, data) for block, data in cursor.blocks.items()]
        if head:
            rows.append(self._row(CURSOR_HEAD, cursor.head))
        if leases and self.acknowledges:
            rows.append(self._row(CURSOR_LEASES, pack_leases(self.leases)))
        written = {row["block"] for row in rows}
        return rows + [self._row(block, None) for block in sorted(self._replaced - written)]

    def _row(self, block: int, data: bytes | None) -> Row:
        counts = self.outstanding.counts if block == CURSOR_HEAD and data is not None else None
        named = dict(zip(("topic", "subscription", "life"), self.listener.incarnation, strict=True))
        counted = {} if counts is None else {"outstanding": counts.outstanding, "waiting": counts.waiting}
        return {**named, "block": block, "bytes": data, **counted}

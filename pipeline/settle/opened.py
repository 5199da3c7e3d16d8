"""What is open of one subscription, and who leases its slots: read from `cursors`, changed by a batch, written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.config.errors import CursorUnreadable
from pipeline.settle.listener import Listener
from schemas import CURSOR_HEAD, CURSOR_LEASES
from state import CorruptBytes, LeaseReplay, Outstanding
from state.lease_bytes import pack_leases, unpack_leases
from state.leases import LeaseRow
from state.outstanding import Cursor
from state.settling import Effect, Event

Row = dict[str, Any]
"""A row of `cursors` by its columns, less those of the batch."""


class Opened:
    """A subscription in its present incarnation: what is outstanding or waiting, and its leases."""

    def __init__(self, listener: Listener, outstanding: Outstanding, leases: LeaseReplay) -> None:
        """Begin with a state; `begun` and `restored` make one."""
        self.listener, self.outstanding, self.leases = listener, outstanding, leases
        self._written = leases.changes
        self._new = False

    @classmethod
    def begun(cls, listener: Listener, after: int) -> Opened:
        """Nothing is open: what version `after` of `redelivery` and those before it released counts as settled."""
        opened = cls(listener, Outstanding(after), LeaseReplay(listener.slots))
        opened._new = True
        return opened

    @classmethod
    def restored(cls, listener: Listener, blocks: Mapping[int, bytes]) -> Opened:
        """The state of which these are the newest rows of `cursors`, by their `block`.

        Raises:
            CursorUnreadable: they are not what settle wrote.
        """
        try:
            leases = unpack_leases(blocks[CURSOR_LEASES])
            own = {block: data for block, data in blocks.items() if block >= 0}
            return cls(listener, Outstanding.restore(blocks[CURSOR_HEAD], own), leases)
        except (CorruptBytes, KeyError) as error:
            raise CursorUnreadable(*listener.incarnation, str(error)) from error

    def follow(self, listener: Listener) -> None:
        """Follow other policies from here on. Other slots are other shares: all leases begin anew."""
        if listener.slots != self.listener.slots:
            self.leases, self._written = LeaseReplay(listener.slots), -1
        self.listener = listener

    def handle(self, events: Sequence[Event], leases: Iterable[LeaseRow], now: int) -> list[Effect]:
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
        blocks = [CURSOR_HEAD, CURSOR_LEASES, *self.outstanding.snapshot().blocks]
        return [self._row(block, None) for block in blocks]

    def saved(self) -> None:
        """Count changes from here on."""
        self.outstanding.saved()
        self._written, self._new = self.leases.changes, False

    def _rows(self, cursor: Cursor, *, head: bool, leases: bool) -> list[Row]:
        rows = [self._row(block, data) for block, data in cursor.blocks.items()]
        if head:
            rows.append(self._row(CURSOR_HEAD, cursor.head))
        if leases:
            rows.append(self._row(CURSOR_LEASES, pack_leases(self.leases)))
        return rows

    def _row(self, block: int, data: bytes | None) -> Row:
        counts = self.outstanding.counts if block == CURSOR_HEAD and data is not None else None
        named = dict(zip(("topic", "subscription", "life"), self.listener.incarnation, strict=True))
        told = {} if counts is None else {"outstanding": counts.outstanding, "waiting": counts.waiting}
        return {**named, "block": block, "bytes": data, **told}

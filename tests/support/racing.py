"""Producers and others on one inbox in a store, at once; and whether anything was lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread

from deltalake import DeltaTable

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.delta.deltars import open_table
from schemas import DELIVERIES, INBOX, Table

_PATIENCE_S, _LEAST = 180, 2


@dataclass
class Race:
    """Two producers and whoever else, each in a thread, on a warehouse with one subscription of topic `t`.

    Attributes:
        root: the warehouse.
        acknowledged: the payloads of messages whose `send` came back.
        failed: what ended a thread.
        over: set when the stages have ended: nobody waits for them any more.
    """

    root: str
    acknowledged: list[bytes] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)
    over: Event = field(default_factory=Event)

    def run(self, seconds: float, *others: Callable[[], object]) -> None:
        """Let them race for so long, each twice at least, then wait until all is delivered."""
        ended = Event()
        works = [partial(self._send, "a"), partial(self._send, "b"), *(_ignoring(other) for other in others)]
        threads = [Thread(target=self._guarded, args=(work, ended)) for work in works]
        for each in threads:
            each.start()
        ended.wait(seconds)
        ended.set()
        for each in threads:
            each.join()
        end = time.monotonic() + _PATIENCE_S
        while len(payloads(self.root, DELIVERIES)) < len(self.acknowledged) and time.monotonic() < end:
            if self.over.wait(0.5):
                break

    def check(self) -> None:
        """Each acknowledged message is in the inbox and was delivered, once."""
        assert not self.failed, self.failed
        assert self.acknowledged
        assert "OPTIMIZE" in operations(self.root, INBOX), "nothing was merged meanwhile"
        for table in (INBOX, DELIVERIES):
            found = Counter(payloads(self.root, table))
            assert found == Counter(self.acknowledged), f"{table.name}: {found.total()} of {len(self.acknowledged)}"

    def _send(self, name: str, number: int) -> None:
        payload = f"{name}{number}".encode()
        send(self.root, [OutgoingMessage("t", payload)])
        self.acknowledged.append(payload)

    def _guarded(self, work: Callable[[int], None], ended: Event) -> None:
        number = 0
        try:
            while number < _LEAST or not ended.is_set():
                work(number)
                number += 1
        except Exception as error:  # noqa: BLE001 - told by `check`
            self.failed.append(error)


def payloads(root: str, table: Table) -> list[bytes]:
    """The payloads of a table as it is now."""
    opened: DeltaTable = open_table(root, table)
    found: list[bytes] = opened.to_pyarrow_table(columns=["payload"]).column("payload").to_pylist()
    return found


def operations(root: str, table: Table) -> set[str]:
    """What was done to a table, by the words of its log."""
    return {each["operation"] for each in open_table(root, table).history()}


def _ignoring(other: Callable[[], object]) -> Callable[[int], None]:
    """Somebody whom nobody counts."""

    def work(_: int) -> None:
        other()

    return work

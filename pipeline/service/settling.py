"""Running settle: a loop in a thread when the clock is live, a step when a replay asks for it.

It answers what the service asks of a streaming query, so that settle starts, fails and stops like the other stages.
"""

from __future__ import annotations

import logging
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.config.settings import Clock, LiveClock
from pipeline.config.stages import SETTLE
from pipeline.config.threads import panics_raised
from pipeline.delta.warehouse import Warehouse
from pipeline.service.clock import SteadyClock, given
from pipeline.service.outages import no_answer
from pipeline.settle.stage import Settle
from pipeline.storage.files import Files
from pipeline.storage.waiting import Folders
from schemas import COMMANDS, CONSUMER_EVENTS, REDELIVERY, SUBSCRIPTIONS
from state.units import Ms

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)
_PAUSE_S, _REMOTE_PAUSE_S = 0.05, 0.5
"""Between two batches, so that what comes together is taken together; in a store each look is a request."""
_QUIET_S, _REMOTE_QUIET_S = 1.0, 2.0
"""Without news, and where nothing says that there are some, tables are looked at so often."""


class SettleLoop:
    """Settle on a clock."""

    def __init__(self, body: Settle, warehouse: Warehouse, clock: Clock) -> None:
        """Start the thread, when the clock is live."""
        self._body, self._instants = body, warehouse.instants(SETTLE)
        paths = [
            f"{warehouse.path(table)}/_delta_log" for table in (COMMANDS, CONSUMER_EVENTS, REDELIVERY, SUBSCRIPTIONS)
        ]
        here = [str(path) for each in paths if (path := Files().local(each)) is not None]
        self._folders = Folders(here) if here else None
        self._ended, self._turn = Event(), Lock()
        self._error: Exception | None = None
        self._steps = 0
        body.watch.started(SETTLE)
        self._thread: Thread | None = None
        if isinstance(clock, LiveClock):
            self._thread = Thread(
                target=self._run, args=(SteadyClock(clock.max_jump_ms),), name="delayline-settle", daemon=True
            )
            self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it goes on by itself, or would when it is asked."""
        return self._error is None and not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """Whether it is in a batch, by Spark's name for that."""
        return {"isTriggerActive": self._turn.locked()}

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's name
        """Spark knows nothing of it."""
        return []

    @property
    def lastProgress(self) -> Any | None:  # noqa: ANN401, N802 - Spark's name, and Spark's is no number
        """How many steps it has made; None before the first one."""
        return self._steps or None

    def exception(self) -> Exception | None:
        """What it died of."""
        return self._error

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Take batches at the last instant that a virtual clock was given, until there is nothing to take.

        Raises:
            Exception: what went wrong; settle is dead then.
        """
        instant = max(given(self._instants), default=0)
        try:
            while self.isActive and instant and self._step(Ms(instant), patient=False):
                pass
        except Exception as error:
            self._error = error
            raise

    def stop(self) -> None:
        """End the thread, between two batches."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._body.watch.ended(SETTLE)

    def _step(self, instant: Ms, *, patient: bool) -> bool:
        with self._turn, panics_raised():
            more = self._body.step(instant, patient=patient)
            self._steps += 1
            return more

    def _run(self, clock: SteadyClock) -> None:
        pause = _REMOTE_PAUSE_S if self._folders is None else _PAUSE_S
        try:
            while not self._ended.is_set():
                seen = None if self._folders is None else self._folders.state()
                self._step(Ms(clock.ms()), patient=True)
                self._ended.wait(pause)
                self._wait(seen)
        except Exception as error:  # noqa: BLE001 - it ends the stage, which looks for it
            # Who looks for it tells of a store that does not answer.
            if no_answer(error) is None:
                _LOG.exception("settle ended")
            self._error = error
            self._body.watch.ended(SETTLE)

    def _wait(self, seen: list[int] | None) -> None:
        """Wait for news, but not for ever."""
        if self._folders is None or seen is None:
            self._ended.wait(_REMOTE_QUIET_S)
            return
        left = _QUIET_S
        while left > 0 and not self._ended.is_set() and self._folders.state() == seen:
            self._folders.wait(_PAUSE_S * 2)
            left -= _PAUSE_S * 2


Query: TypeAlias = "StreamingQuery | SettleLoop"
"""What runs a stage."""

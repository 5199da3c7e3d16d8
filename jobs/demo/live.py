"""Part one: a handful of messages with delays of seconds, printed as they arrive."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from jobs.commands.receive import line
from jobs.commands.run import StageFailed
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.deliveries import Deliveries, Delivery
from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.delta.warehouse import Warehouse
from pipeline.service.run import Stage, start_all, stop_all

TOPIC = "live"
DELAYS_S = (0, 3, 6, 9, 12, 20, 30)
_WARM_UP, _TICK_MS, _POLL_S, _PATIENCE_S = 3, 250, 0.2, 120.0


def play(spark: SparkSession, root: str, echo: Callable[[str], None]) -> list[Delivery]:
    """Run the stages on the live clock until all messages have arrived; give them in the order of arrival.

    Raises:
        StageFailed: a stage failed, or a message did not arrive within two minutes.
    """
    create_all(root)
    subscribe(root, Subscription(TOPIC, "watcher", tick_ms=_TICK_MS, start="earliest"))
    running = start_all(Warehouse(root, spark), Options(LiveClock()))
    try:
        arrivals = _arrivals(root, running)
        echo(f"The stages are up; {_WARM_UP} messages, one after the other, warm them.")
        for _ in range(_WARM_UP):
            send(root, [_message(0, "warm-up")])
            next(arrivals)
        echo(f"Sending {len(DELAYS_S)} messages, to be delivered after {', '.join(map(str, DELAYS_S))} s.")
        send(root, [_message(delay, f"sent for +{delay} s") for delay in DELAYS_S])
        return [_shown(next(arrivals), echo) for _ in DELAYS_S]
    finally:
        stop_all(running)


def _message(delay_s: int, text: str) -> OutgoingMessage:
    return OutgoingMessage(TOPIC, text.encode(), datetime.now(UTC), deliver_after_ms=1_000 * delay_s)


def _shown(delivery: Delivery, echo: Callable[[str], None]) -> Delivery:
    echo(f"  {line(delivery)}")
    return delivery


def _arrivals(root: str, running: list[Stage]) -> Iterator[Delivery]:
    """Deliveries as they come."""
    deliveries, patience = Deliveries(root), time.monotonic() + _PATIENCE_S
    while time.monotonic() < patience:
        for each in deliveries.take():
            patience = time.monotonic() + _PATIENCE_S
            yield each
        for stage in running:
            if stage.failure is not None:
                raise StageFailed(stage.failure)
        time.sleep(_POLL_S)
    raise StageFailed(f"nothing arrived within {_PATIENCE_S:.0f} s")

"""Part three: two workers share a subscription; some orders fail, and one worker is killed."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from jobs.commands.run import StageFailed
from jobs.demo import worker
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.paths import python_environment
from pipeline.config.settings import LiveClock
from pipeline.delta.deltars import open_table, query
from pipeline.delta.warehouse import Warehouse
from pipeline.service.run import Stage, start_all, stop_all
from pipeline.subscriptions.policies import Policies
from schemas import CURSORS, DELIVERIES, INBOX

TOPIC, NAME = "orders", "billing"
ORDERS, BEFORE_KILL = 24, 4
"""How many are sent; one worker is killed when it has said something so often."""
_POLICIES = Policies(ack=True, retry_min_ms=1_000, max_redeliveries=2)
_TICK_MS, _POLL_S, _PATIENCE_S = 250, 0.2, 120.0
_OPEN = "SELECT outstanding + waiting AS open FROM cursors WHERE block = -1 ORDER BY batch_id DESC LIMIT 1"
_HANDED = "SELECT redelivery_count AS count, COUNT(*) AS n FROM deliveries GROUP BY redelivery_count ORDER BY count"
_LETTERS = f"SELECT payload FROM inbox WHERE topic = '{_POLICIES.dead_letters(TOPIC, NAME)}'"  # noqa: S608 - our own


@dataclass(frozen=True)
class Verdict:
    """What the tables say in the end.

    Attributes:
        handed: deliveries by redelivery count.
        letters: payloads of the dead letters.
        open: messages that are neither acknowledged nor given up.
    """

    handed: dict[int, int]
    letters: list[str]
    open: int

    @property
    def good(self) -> bool:
        """Whether each order was settled, and those that cannot be done are in the dead-letter topic, once."""
        poisoned = sorted(text for text in texts() if text.startswith(worker.POISON))
        return self.open == 0 and self.handed.get(0) == ORDERS and sorted(self.letters) == poisoned

    def lines(self) -> Iterator[str]:
        """A table for people."""
        yield f"  {'orders sent':32}{ORDERS:>4}"
        for count, number in self.handed.items():
            yield f"  {f'handed out again, time {count}' if count else 'handed out':32}{number:>4}"
        yield f"  {'acknowledged':32}{ORDERS - len(self.letters):>4}"
        yield f"  {'dead letters':32}{len(self.letters):>4}  {', '.join(sorted(self.letters))}"
        yield f"  {'neither':32}{self.open:>4}"


def texts() -> list[str]:
    """What the orders are called."""
    kinds = {5: worker.FLAKY, 11: worker.POISON, 17: worker.FLAKY, 20: worker.POISON}
    return [f"{kinds.get(number, 'order')}-{number}" for number in range(ORDERS)]


def play(spark: SparkSession, root: str, echo: Callable[[str], None]) -> Verdict:
    """Run the stages and two workers until every order is settled.

    Raises:
        StageFailed: a stage failed, or the orders were not settled within two minutes.
    """
    create_all(root)
    subscribe(root, Subscription(TOPIC, NAME, "shared", tick_ms=_TICK_MS, start="earliest", policies=_POLICIES))
    running = start_all(Warehouse(root, spark), Options(LiveClock()))
    try:
        with _working(root, "first", echo) as first, _working(root, "second", echo) as second:
            echo(f"Two workers; {ORDERS} orders, due at once and within three seconds. Some fail.")
            send(
                root,
                [
                    OutgoingMessage(TOPIC, each.encode(), deliver_after_ms=n % 4 * 1_000)
                    for n, each in enumerate(texts())
                ],
            )
            _until(lambda: second.said >= BEFORE_KILL, running)
            second.process.kill()
            echo("The second worker is killed. Its lease ends, and the first one gets what it had.")
            _until(lambda: first.said > 0 and verdict(root).good, running)
        return verdict(root)
    finally:
        stop_all(running)


def _order(number: int, text: str) -> OutgoingMessage:
    return OutgoingMessage(TOPIC, text.encode(), deliver_after_ms=number % 4 * 1_000)


def verdict(root: str) -> Verdict:
    """Ask the tables."""
    standing = query(_OPEN, cursors=open_table(root, CURSORS))
    handed = query(_HANDED, deliveries=open_table(root, DELIVERIES))
    letters = query(_LETTERS, inbox=open_table(root, INBOX))
    return Verdict(
        {row["count"]: row["n"] for row in handed},
        [row["payload"].decode() for row in letters],
        standing[0]["open"] if standing else ORDERS,
    )


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    said: int = 0


@contextmanager
def _working(root: str, name: str, echo: Callable[[str], None]) -> Iterator[_Worker]:
    """A worker in a process of its own, whose lines are echoed; killed in the end."""
    environment = os.environ | python_environment()
    words = [sys.executable, "-m", worker.__name__, root, TOPIC, NAME, name]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - our own
    one = _Worker(process)

    def listen() -> None:
        for line in process.stdout or ():
            one.said += 1
            echo(f"  {line.rstrip()}")

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        process.kill()
        process.wait()
        thread.join()


def _until(look: Callable[[], bool], running: list[Stage]) -> None:
    patience = time.monotonic() + _PATIENCE_S
    while not look():
        for stage in running:
            if stage.failure is not None:
                raise StageFailed(stage.failure)
        if time.monotonic() > patience:
            raise StageFailed(f"the orders were not settled within {_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)

"""Key-shared consumers and then the service are killed with -9: each key stays in the order of its due times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS
from tests.support.killing import Victim
from tests.support.modules import ROOT

SEED, RATE, KEYS, SENDING_S, TICK_MS = 20_261_127, 400, 97, 75, 1_000
DELAYS_MS = 15_000, 30_000
TOPIC, NAME, WORKERS = "orders", "billing", 4
WORKERS_KILLED_S, SERVICE_KILLED_S, SERVICE_BACK_S = (27, 35, 42, 50), 39, 60
_APPENDED_MS = 5_000
"""So long after a consumer said it, an acknowledgement is in the table for certain, or the consumer is dead."""
_PATIENCE_S = 240.0
_OPEN = "SELECT outstanding + waiting AS open FROM cursors WHERE block = -1 ORDER BY batch_id DESC LIMIT 1"
_ACKS = """
    SELECT ledger_id, first_entry, last_entry, arrow_cast(at, 'Int64') / 1000 AS at FROM events WHERE kind = 'ack'
"""


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """Whatever a failed test has left running is killed."""
    yield
    Victim.kill_all()


@dataclass(frozen=True)
class Handed:
    """A line of what the workers noted: a message, as one of them was handed it."""

    place: str
    count: int
    key: str
    due: int
    number: int
    at: int

    @classmethod
    def of(cls, words: list[str]) -> Handed:
        """From the words of a line behind the first one."""
        key, due, number = words[2].split("-")
        return cls(words[0], int(words[1]), key, int(due), int(number), int(words[3]))


class Shop:
    """A warehouse, its service, a producer, and consumers of a key-shared subscription in processes of their own."""

    def __init__(self, folder: Path) -> None:
        """Make the warehouse, and start the service and the consumers."""
        self.root, self._folder, self.sent = str(folder / "warehouse"), folder, 0
        create_all(self.root)
        policies = Policies(ack=True, retry_min_ms=1_000, retry_max_ms=1_000)
        subscribe(self.root, Subscription(TOPIC, NAME, "key_shared", tick_ms=TICK_MS, policies=policies))
        self.service = self.start_service()
        self.workers = [self.start_worker(number) for number in range(WORKERS)]

    def start_service(self) -> Victim:
        """Start the job."""
        profile = str(ROOT / "conf" / "local.toml")
        return self._begin("service", ["jobs.deliver", "--profile", profile, "--warehouse", self.root])

    def start_worker(self, number: int) -> Victim:
        """Start a consumer."""
        words = ["tests.support.consuming_worker", self.root, TOPIC, NAME, str(self._notes), "key_shared"]
        return self._begin(f"worker-{number}", words)

    def _begin(self, name: str, words: list[str]) -> Victim:
        return Victim.begin(words, self._folder / f"{name}.log", self._folder / f"{name}.scratch")

    def kill_worker(self, number: int) -> None:
        """Kill a consumer, and let another process take its place."""
        self.workers[number].kill()
        self.workers[number] = self.start_worker(number)

    def send(self) -> None:
        """Send at a steady rate, each message with a key and a delay that are drawn."""
        draw, began = random.Random(SEED), time.monotonic()  # noqa: S311 - seeded
        with Client(self.root) as client:
            producer = client.create_producer(TOPIC)
            while (number := self.sent) < RATE * SENDING_S:
                due, key = wall_ms() + draw.randint(*DELAYS_MS), f"k{draw.randrange(KEYS)}"
                producer.send_async(f"{key}-{due}-{number}".encode(), None, partition_key=key, deliver_at=due)
                self.sent = number + 1
                time.sleep(max(0.0, began + self.sent / RATE - time.monotonic()))
            producer.flush()

    @property
    def _notes(self) -> Path:
        return self._folder / "notes"

    def noted(self, word: str) -> list[Handed]:
        """What the workers noted with a word, in the order in which they did."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [Handed.of(words[1:]) for words in map(str.split, lines) if words[0] == word]

    @property
    def open(self) -> int | None:
        """How many messages are open; None: settle does not know the subscription."""
        return next((row["open"] for row in query(_OPEN, cursors=open_table(self.root, CURSORS))), None)

    def comes_to(self, look: Callable[[], bool]) -> bool:
        """Wait until something is so; whether it was in time, and the job still ran."""
        until = time.monotonic() + _PATIENCE_S
        while self.service.alive and time.monotonic() < until:
            if look():
                return True
            time.sleep(1.0)
        return False

    def acknowledged(self) -> dict[str, int]:
        """When somebody said first that a message is done with, of what is in the table, by position."""
        found: dict[str, int] = {}
        for row in query(_ACKS, events=open_table(self.root, CONSUMER_EVENTS)):
            for entry in range(row["first_entry"], row["last_entry"] + 1):
                place = f"{row['ledger_id']}:{entry}"
                found[place] = min(row["at"], found.get(place, row["at"]))
        return found


def out_of_order(handed: list[Handed]) -> int:
    """How many messages came for the first time after one of their key that is due more than a tick later."""
    last, seen, broken = dict[str, int](), set[int](), 0
    for each in handed:
        if each.count == 0 and each.number not in seen:
            broken += each.due + TICK_MS < last.get(each.key, 0)
            last[each.key] = max(each.due, last.get(each.key, 0))
        seen.add(each.number)
    return broken


def play(shop: Shop) -> None:
    """Kill consumers and service at their times, while messages are sent."""
    killings: list[tuple[int, Callable[[], object]]] = [
        (second, lambda number=number: shop.kill_worker(number))  # type: ignore[misc]
        for number, second in enumerate(WORKERS_KILLED_S)
    ]
    steps = [*killings, (SERVICE_KILLED_S, shop.service.kill)]
    began = time.monotonic()
    sending = threading.Thread(target=shop.send)
    sending.start()
    for second, step in sorted(steps, key=lambda each: each[0]):
        time.sleep(max(0.0, began + second - time.monotonic()))
        step()
    time.sleep(max(0.0, began + SERVICE_BACK_S - time.monotonic()))
    shop.service = shop.start_service()
    sending.join()


def test_keys_stay_in_order_though_consumers_and_service_are_killed(tmp_path: Path) -> None:
    """A file of an outage whose first row is old was once read before files that belong before its other rows."""
    shop = Shop(tmp_path)
    assert shop.comes_to(lambda: shop.open is not None)
    play(shop)
    wanted = set(range(shop.sent))
    handled = shop.comes_to(lambda: wanted == {each.number for each in shop.noted("ack")} and shop.open == 0)
    handed, acked = shop.noted("got"), shop.acknowledged()
    lost = wanted - {each.number for each in shop.noted("ack")}
    early = [each for each in handed if each.at < each.due]
    twice = [each for each in handed if each.place in acked and each.at > acked[each.place] + _APPENDED_MS]
    broken = out_of_order(handed)
    report = (
        f"{len(wanted)} sent, {len(handed)} handed out: order broken {broken}, lost {len(lost)}, early {len(early)}"
    )
    print(f"\n{report}, acknowledged and handed out again {len(twice)}")
    assert handled, shop.service.log.read_text()[-4_000:]
    assert (broken, len(lost), len(early), len(twice)) == (0, 0, 0, 0)

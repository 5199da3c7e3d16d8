"""Service and consumers are killed with -9, again and again: every message is settled, and none is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, CURSORS, INBOX, REDELIVERY, REJECTED_SETTLE
from tests.support.killing import Victim
from tests.support.modules import ROOT

SEED, ROUNDS, EACH, MOST_REDELIVERIES = 20_261_124, 30, 40, 6
TOPIC, NAME = "orders", "billing"
WORKERS = ("first", "second")
_COUNTS = """
    SELECT outstanding, waiting FROM cursors WHERE block = -1 ORDER BY batch_id DESC LIMIT 1
"""
_LETTERS = f"SELECT payload FROM inbox WHERE topic = '{TOPIC}-{NAME}-DLQ'"  # noqa: S608 - our own words
_ACKS = """
    SELECT ledger_id, first_entry, last_entry, arrow_cast(at, 'Int64') / 1000 AS at FROM events WHERE kind = 'ack'
"""
_SETTLED_MS = 60_000
"""Long after this an acknowledgement that was appended is applied, however long a service takes to start."""
_ROUNDS = "SELECT ledger_id, first_entry, last_entry, redelivery_count FROM redelivery"


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """Whatever a failed test has left running is killed."""
    yield
    Victim.kill_all()


class Shop:
    """A warehouse, its service and two workers."""

    def __init__(self, folder: Path) -> None:
        """Make the warehouse, and start all."""
        self.root, self._folder, self.sent = str(folder / "warehouse"), folder, list[str]()
        create_all(self.root)
        policies = Policies(ack=True, retry_min_ms=1_000, max_redeliveries=MOST_REDELIVERIES)
        subscribe(self.root, Subscription(TOPIC, NAME, "shared", tick_ms=1, policies=policies))
        self.running = {name: self.start(name) for name in ("service", *WORKERS)}

    def start(self, name: str) -> Victim:
        """Start a process of that name."""
        if name == "service":
            words = ["jobs.deliver", "--profile", str(ROOT / "conf" / "local.toml"), "--warehouse", self.root]
        else:
            words = ["tests.support.consuming_worker", self.root, TOPIC, NAME, str(self._folder / "notes")]
        return Victim.begin(words, self._folder / f"{name}.log", self._folder / f"{name}.scratch")

    def send(self) -> None:
        """Send some messages: good ones, some that fail once, some that always fail; due at once and later."""
        kinds = ("good", "good", "good", "once", "bad") if len(self.sent) < ROUNDS * EACH // 2 else ("good", "once")
        fresh = [f"{kinds[number % len(kinds)]}-{len(self.sent) + number}" for number in range(EACH)]
        delays = (None, 500, 2_000)
        delayed = zip(fresh, (delays[number % 3] for number in range(EACH)), strict=True)
        send(self.root, [OutgoingMessage(TOPIC, text.encode(), deliver_after_ms=after) for text, after in delayed])
        self.sent += fresh

    def kill(self, name: str) -> None:
        """Kill a process, and start it again."""
        self.running[name].kill()
        self.running[name] = self.start(name)

    @property
    def notes(self) -> list[list[str]]:
        """What the workers noted."""
        file = self._folder / "notes"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def settled_and_handed(self) -> list[str]:
        """What was handed out though its acknowledgement had been in the table for long."""
        rows = query(_ACKS, events=open_table(self.root, CONSUMER_EVENTS))
        acked: dict[str, int] = {}
        for row in rows:
            for entry in range(row["first_entry"], row["last_entry"] + 1):
                place = f"{row['ledger_id']}:{entry}"
                acked[place] = min(row["at"], acked.get(place, row["at"]))
        got = [(place, int(at)) for said, place, _, _, at in self.notes if said == "got"]
        return [place for place, at in got if place in acked and at > acked[place] + _SETTLED_MS]

    def words(self, word: str) -> Counter[str]:
        """How often each payload was noted with a word."""
        return Counter(payload for said, _, _, payload, _ in self.notes if said == word)

    @property
    def letters(self) -> list[str]:
        """Dead letters."""
        return [row["payload"].decode() for row in query(_LETTERS, inbox=open_table(self.root, INBOX))]

    @property
    def is_settled(self) -> bool:
        """Whether each message was acknowledged or given up, and nothing is open."""
        if set(self.sent) - set(self.words("ack")) - set(self.letters):
            return False
        rows = query(_COUNTS, cursors=open_table(self.root, CURSORS))
        return [(row["outstanding"], row["waiting"]) for row in rows] == [(0, 0)]


def test_everything_is_settled_though_service_and_consumers_are_killed(tmp_path: Path) -> None:
    """Dead letters come once; each redelivery is released once; what was acknowledged is open no more."""
    shop, draw = Shop(tmp_path), random.Random(SEED)  # noqa: S311 - seeded
    killed = Counter[str]()
    for _ in range(ROUNDS):
        shop.send()
        known = len(shop.notes)
        shop.running["service"].wait_for(lambda known=known: len(shop.notes) > known + draw.randint(1, EACH))  # type: ignore[misc]
        victim = draw.choice(("service", *WORKERS, *WORKERS))
        shop.kill(victim)
        killed[victim] += 1
    assert shop.running["service"].wait_for(lambda: shop.is_settled), shop.running["service"].log.read_text()[-4_000:]
    letters = Counter(shop.letters)
    releases = query(_ROUNDS, redelivery=open_table(shop.root, REDELIVERY))
    rounds = Counter(
        (row["ledger_id"], entry, row["redelivery_count"])
        for row in releases
        for entry in range(row["first_entry"], row["last_entry"] + 1)
    )
    handed = shop.words("got")
    report = (
        f"{len(shop.sent)} sent, {sum(handed.values())} handed out, {len(letters)} dead letters, killed {dict(killed)}"
    )
    print(f"\n{report}")
    assert set(letters.values()) <= {1}
    assert {each for each in shop.sent if each.startswith("bad")} <= set(letters)
    assert set(rounds.values()) == {1}
    assert open_table(shop.root, REJECTED_SETTLE).count() == 0
    assert shop.settled_and_handed == []

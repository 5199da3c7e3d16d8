"""Exactly once under `kill -9` of the whole process, at seeded points, with other settings at the restarts."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.client.commanding.arguments import HowCommanded
from pipeline.client.commanding.commands import Command, cancel, release_now, shift, undo
from pipeline.client.commanding.inforce import in_force
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.create import create_all
from pipeline.client.insight.pending import pending
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import DAY_MS, HOUR_MS
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import actions
from pipeline.storage.files import Files
from pipeline.worker.express import CAUSE
from schemas import (
    CANCELLED,
    DELIVERIES,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    Table,
)
from tests.support import killed
from tests.support.killing import Victim
from tests.support.maintained import shorten_logs, sizes, versions
from tests.support.s3 import named

SEED = 20_131_105
DISK, STORE, BUCKET = "disk", "store", "bucket"
MOST_STEPS, MOST_SECONDS = {DISK: 8, STORE: 40}, 1.5
"""A kill comes so many noted steps after the start, or fewer, and so many seconds later, or less. In a store each step
takes longer: there are fewer kills, further from each other."""
CHOICES = {
    "horizon_ms": (0, HOUR_MS, DAY_MS, 5 * DAY_MS),
    # Accept and refuse the same: a delay of the input is up to 20 days, or 400.
    "max_delay_ms": (killed.LONGEST_MS, 300 * DAY_MS),
    "partitions": (1, 2, 3, 4),
    "rows_per_task": (10, 100, 100_000),
    "max_files": (1, 2, 10_000),
    "driver_rows": (0, 5, 1_000_000),
}
START = {"max_delay_ms": 300 * DAY_MS}
LAST = killed.T0 + killed.STEP_MS * (killed.INSTANTS - 1)
Row = tuple[Any, ...]


def root_in(place: str, folder: Path) -> str:
    """The warehouse of a test's folder: in it, or in the store by its name."""
    return str(folder / "warehouse") if place == DISK else f"s3a://{BUCKET}/{folder.name}"


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where warehouses lie; for those in a store there is one."""
    if request.param == STORE:
        pytest.importorskip("moto", reason="the store needs requirements/all.lock")
    with named(BUCKET) if request.param == STORE else ExitStack():
        yield str(request.param)


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """Whatever a failed test has left running is killed."""
    yield
    Victim.kill_all()


class Round:
    """One warehouse, and the processes that run on it one after the other."""

    def __init__(self, folder: Path, place: str = DISK, *more: str) -> None:
        """Make the warehouse in a place, and its input; `more` is said to the processes."""
        folder.mkdir()
        self._more, self._most = more, MOST_STEPS[place]
        self.root, self._folder, self._source = root_in(place, folder), folder, folder / "input.parquet"
        self._steps, self.starts = folder / "steps", 0
        killed.prepare(self.root, self._source)
        if more:
            shorten_logs(self.root)

    @property
    def steps(self) -> list[str]:
        """What was noted so far, by all processes."""
        return self._steps.read_text().splitlines() if self._steps.exists() else []

    def start(self, changes: dict[str, int]) -> Victim:
        """Start the process, the first time or again."""
        self.starts += 1
        words = ["tests.support.killed", self.root, str(self._source), json.dumps(changes), str(self._steps)]
        words += self._more
        return Victim.begin(words, self._folder / "log", self._folder / "scratch")

    def undisturbed(self) -> Round:
        """Run it to its end."""
        assert self.start(START).end() == 0, (self._folder / "log").read_text()[-4_000:]
        return self

    def run_and_kill(self, draw: random.Random, changes: dict[str, int]) -> str | None:
        """Start, kill -9; the last step that was noted before, None when it came to its end first."""
        count = len(self.steps) + draw.randint(1, self._most)
        victim, seconds = self.start(changes), draw.uniform(0, MOST_SECONDS)
        if victim.wait_for(lambda: len(self.steps) >= count):
            try:
                victim.process.wait(seconds)
            except subprocess.TimeoutExpired:
                victim.kill()
                return self.steps[-1].split()[0]
        assert victim.end() == 0, (self._folder / "log").read_text()[-4_000:]
        return None


def table(root: str, which: Table, *columns: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    found: list[dict[str, Any]] = open_table(root, which).to_pyarrow_table(columns=list(columns)).to_pylist()
    return found


def content(root: str, which: Table, *without: str) -> list[Row]:
    """A table's rows in a fixed order, less batch ids and what else a setting may change."""
    names = [name for name in which.schema.names if name not in ("batch_id", *without)]
    return sorted((tuple(row.values()) for row in table(root, which, *names)), key=repr)


def handed_over(root: str) -> list[Row]:
    """The deliveries in their order."""
    rows = sorted(table(root, DELIVERIES, *DELIVERIES.schema.names), key=lambda row: (row["batch_id"], row["sequence"]))
    return [tuple(value for name, value in row.items() if name != "batch_id") for row in rows]


def released(root: str) -> list[Row]:
    """What became due, position by position: how runs are cut depends on how rows were cut into files."""
    found: list[Row] = []
    for row in table(root, REDELIVERY, *REDELIVERY.schema.names):
        first, last = row.pop("first_entry"), row.pop("last_entry")
        row.pop("batch_id")
        found += [(entry, *row.values()) for entry in range(first, last + 1)]
    return sorted(found, key=repr)


def same(one: Round, other: Round) -> None:
    """Every table of one holds what the other's holds, the deliveries in the same order."""
    assert handed_over(one.root) == handed_over(other.root)
    assert released(one.root) == released(other.root)
    # Whether a message was parked depends on the horizon; where it is and when it comes does not.
    assert content(one.root, MESSAGES, "parked") == content(other.root, MESSAGES, "parked")
    for which in (INBOX, REJECTED_INGEST, REJECTED_DISPATCH, PUBLICATIONS):
        assert content(one.root, which) == content(other.root, which), which.name


def faults(root: str) -> dict[str, int]:
    """Lost, twice and early, by the input alone."""
    found = table(root, DELIVERIES, "subscription", "payload", "deliver_at", "publish_time", "released_at", "due_time")
    times = Counter((row["subscription"], int(row["payload"])) for row in found)
    due = {(name, number): _due(number) for topic, name, _ in killed.SUBSCRIBED for number in range(killed.COUNT)
           if killed.accepted(number) and killed.sent(number)["topic"] == topic}  # fmt: skip
    ticks = {name: tick for _, name, tick in killed.SUBSCRIBED}
    return {
        "lost": sum(due[key] + ticks[key[0]] <= LAST and key not in times for key in due),
        "twice": sum(count - 1 for count in times.values()),
        "early": sum(
            row["released_at"] < max(row["deliver_at"] or row["publish_time"], row["due_time"]) for row in found
        ),
        "foreign": sum(key not in due or due[key] > LAST for key in times),
    }


def _due(number: int) -> int:
    """When a row of the input is due, ms: a duration counts from the instant at which it is taken in."""
    row = killed.sent(number)
    published: int = row["publish_time"]
    taken = killed.T0 - (killed.T0 - published) // killed.STEP_MS * killed.STEP_MS
    after = row.get("deliver_after_ms")
    asked: int = row.get("deliver_at", 0) if after is None else taken + after
    return max(published, asked)


@pytest.mark.parametrize(("place", "kills"), [(DISK, 10), (STORE, 4)], indirect=["place"])
def test_killed_with_maintenance_at_every_instant_the_deliveries_are_the_same(
    tmp_path: Path, place: str, kills: int
) -> None:
    """Kills fall between its steps too. What is settled is deleted, so the deliveries alone can be compared."""
    draw, fell = random.Random(SEED + 1), Counter[str]()  # noqa: S311 - seeded on purpose
    plain = Round(tmp_path / "undisturbed").undisturbed()
    world, changes = Round(tmp_path / "maintained", place, "maintain"), START
    while fell.total() < kills and (step := world.run_and_kill(draw, changes)) is not None:
        fell[step] += 1
        print(f"kill {fell.total():2} after {world.steps[-1]:28} settings {changes}")
        changes = {name: draw.choice(values) for name, values in CHOICES.items()}
    assert fell.total() < kills or world.start(changes).end() == 0
    assert handed_over(world.root) == handed_over(plain.root)
    assert faults(world.root) == faults(plain.root) == {"lost": 0, "twice": 0, "early": 0, "foreign": 0}
    assert table(world.root, REJECTED_DISPATCH, "reason") == []
    print("kills after each step:", dict(fell.most_common()))
    print("files and log entries, maintained:", sizes(world.root), "undisturbed:", sizes(plain.root))
    assert len(table(world.root, MESSAGES, "batch_id")) < len(table(plain.root, MESSAGES, "batch_id"))


@pytest.mark.parametrize(("place", "kills"), [(DISK, 30), (STORE, 8)], indirect=["place"])
def test_killed_again_and_again_the_tables_are_those_of_a_run_that_nobody_disturbed(
    tmp_path: Path, place: str, kills: int
) -> None:
    """Row for row, in order: nothing lost, nothing twice, nothing early, whatever the settings at a restart."""
    draw, fell, number = random.Random(SEED), Counter[str](), 0  # noqa: S311 - seeded on purpose
    plain = Round(tmp_path / "undisturbed").undisturbed()
    assert faults(plain.root) == {"lost": 0, "twice": 0, "early": 0, "foreign": 0}
    while fell.total() < kills:
        number += 1
        world, changes = Round(tmp_path / f"round{number}", place), START
        while fell.total() < kills and (step := world.run_and_kill(draw, changes)) is not None:
            fell[step] += 1
            print(f"kill {fell.total():2} after {world.steps[-1]:24} settings {changes}")
            changes = {name: draw.choice(values) for name, values in CHOICES.items()}
        if fell.total() == kills:
            assert world.start(changes).end() == 0
        same(world, plain)
        assert faults(world.root) == faults(plain.root)
        print(f"replay {number}: {world.starts} processes, {len(handed_over(world.root))} deliveries as undisturbed")
    print("kills after each step:", dict(fell.most_common()))
    print(f"{kills} kills, {place}:", faults(plain.root))


def commits(root: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """When each commit of `deliveries` was made, ms, and the rows that it added."""
    folder = path_of(root, DELIVERIES)
    files = Files().folder(folder)
    for version in versions(folder):
        said = actions(Files(), folder, version)
        (made,) = (each["commitInfo"]["timestamp"] for each in said if "commitInfo" in each)
        paths = [each["add"]["path"] for each in said if "add" in each]
        columns = ["due_time", "publish_time", "payload"]
        yield (
            made,
            [row for path in paths for row in pq.read_table(path, columns=columns, filesystem=files).to_pylist()],
        )


def lateness(root: str, after: dict[bytes, int]) -> tuple[list[float], list[float]]:
    """The ms from the due time of each delivery to its commit by the wall clock, ascending.

    The second list counts from what the sender asked for, by the sender's clock, where that counts.
    """
    due, asked = list[float](), list[float]()
    for made, rows in commits(root):
        for row in rows:
            due.append(made - row["due_time"].timestamp() * 1_000)
            if row["payload"] in after:
                asked.append(made - row["publish_time"].timestamp() * 1_000 - after[row["payload"]])
    return sorted(due), sorted(asked)


def profile(path: Path, lookahead_ms: int, draw: random.Random) -> Path:
    """A profile for `delayline run`."""
    express = draw.choice(("", "express_ms = 0", "express_ms = 300", "express_ms = 5000", "express_ms = 60000"))
    path.write_text(
        f'[session]\nmemory = "1g"\n[settings]\nhorizon_ms = {draw.choice((0, 10_000, HOUR_MS))}\n'
        f"partitions = {draw.choice((1, 2, 3))}\n{express}\n"
        f"[clock]\nlookahead_ms = {lookahead_ms}\nmax_step_ms = 600000\n"
    )
    return path


def out_of_order(root: str) -> int:
    """The deliveries of a batch that come after one that was due later."""
    order = ("batch_id", "due_time", "deliver_at", "ledger_id", "entry_id")
    rows = sorted(table(root, DELIVERIES, *order, "sequence"), key=lambda row: (row["batch_id"], row["sequence"]))
    keys = [tuple(row[name] for name in order) for row in rows]
    return sum(one > other for one, other in pairwise(keys))


class Minds:
    """Somebody who cancels, moves and takes back some of what waits, by key."""

    def __init__(self, root: str, draw: random.Random) -> None:
        self._root, self._draw, self._given = root, draw, list[str]()
        self.moved = set[bytes]()

    def change(self, sent: Collection[bytes]) -> None:
        """Give a command over a few of the messages that were sent, or take one of the last ones back."""
        keys = self._draw.sample(sorted(sent), min(6, len(sent)))
        selection: HowCommanded = {"where": f"message_key IN ({', '.join(repr(key.decode()) for key in keys)})"}
        span = timedelta(seconds=self._draw.choice((-20, -5, 5, 20)))
        kinds: tuple[Callable[[], Command], ...] = (
            lambda: cancel(self._root, "t", **selection),
            lambda: shift(self._root, "t", span=span, **selection),
            lambda: release_now(self._root, "t", **selection),
            lambda: undo(self._root, self._draw.choice(self._given[-3:])),
        )
        kind = self._draw.choice(kinds if self._given else kinds[:-1])
        found = kind()
        self.moved |= set(keys) if kind is not kinds[0] else set()
        if found.command_id is not None and found.kind != "undo":
            self._given.append(found.command_id)

    def check(self, sent: Collection[bytes]) -> None:
        """Each message came once, or was cancelled, and the outcomes say the same. An undo may come too late, too."""
        came = Counter(row["payload"] for row in table(self._root, DELIVERIES, "payload"))
        assert set(came.values()) == {1}
        found = outcomes(self._root, 9_999)
        assert [each for each in found if each.deciding] == []
        refused = table(self._root, REJECTED_DISPATCH, "reason", "ledger_id", "entry_id")
        gone = {(row["ledger_id"], row["entry_id"]) for row in refused if row["reason"] == CANCELLED}
        held = {(n, e) for each in in_force(self._root).withdrawn.values() for n, own in each.by_ledger() for e in own}
        assert len(held - gone) == sum(each.too_late for each in found if each.kind == "cancel")
        assert len(set(sent) - came.keys()) == len(gone) == sum(e.applied for e in found if e.kind == "cancel")
        kinds = Counter(each.kind for each in found)
        what = Counter({name: sum(getattr(e, name) for e in found) for name in ("applied", "too_late", "undone")})
        print(f"commands: {dict(kinds)}, messages: {dict(what)}, {len(gone)} did not come")
        assert what["applied"] > 0 < what["undone"]


@pytest.mark.parametrize(
    ("place", "lookahead_ms", "kills", "commands"),
    [(DISK, 0, 4, False), (DISK, 2_000, 30, False), (DISK, 2_000, 30, True), (STORE, 2_000, 4, False)],
    indirect=["place"],
)
def test_killed_on_the_live_clock_nothing_is_lost_twice_or_early(
    tmp_path: Path, place: str, lookahead_ms: int, kills: int, *, commands: bool
) -> None:
    """By the wall clock: the commit that shows a delivery is not made before the delivery is due.

    With commands in flight a message may be cancelled, too, and then it does not come.
    """
    draw, root = random.Random(SEED + lookahead_ms), root_in(place, tmp_path)  # noqa: S311 - seeded on purpose
    create_all(root, segment_ms=10_000)
    subscribe(root, Subscription("t", "s", tick_ms=1, start="latest"))
    after: dict[bytes, int] = {}
    ahead, minds = lookahead_ms, Minds(root, draw)
    for kill in range(kills + 1):
        path = profile(tmp_path / "profile.toml", ahead, draw)
        victim = Victim.begin(["jobs.cli", "run", "-w", root, "--profile", str(path)], tmp_path / "log", tmp_path / "s")
        assert victim.wait_for(lambda n=kill: (tmp_path / "log").read_text().count("Running on") > n)  # type: ignore[misc]
        for _ in range(3):
            fresh = {b"%d" % (len(after) + each): draw.randint(0, 30_000) for each in range(40)}
            now = datetime.now(UTC)
            send(root, [_message(payload, now, ms) for payload, ms in fresh.items()])
            after |= fresh
            assert not _ended_within(victim, draw.uniform(1, 5)), (tmp_path / "log").read_text()[-4_000:]
            for _ in range(2 * commands):
                minds.change(list(after)[-200:])
        if kill < kills:
            victim.kill()
            ahead = draw.choice((lookahead_ms, lookahead_ms // 2))
    assert victim.wait_for(lambda: not _waits(root))
    victim.process.terminate()
    assert victim.end() == 0
    if commands:
        minds.check(after)
    else:
        assert sorted(row["payload"] for row in table(root, DELIVERIES, "payload")) == sorted(after)
    late, asked = lateness(root, {key: ms for key, ms in after.items() if key not in minds.moved})
    express = sum(row["cause"] == CAUSE for row in table(root, DELIVERIES, "cause"))
    print(f"lookahead {lookahead_ms} ms: {kills} kills, {len(late)} deliveries, {express} express, 0 lost, 0 twice")
    print(f"ms from due to commit: least {late[0]:.0f}, median {late[len(late) // 2]:.0f}, most {late[-1]:.0f}")
    print(f"ms from what the sender asked for, by the sender's clock: least {asked[0]:.0f}")
    assert late[0] >= 0
    assert out_of_order(root) == 0
    assert 0 < express < len(late)


def _message(payload: bytes, now: datetime, ms: int) -> OutgoingMessage:
    return OutgoingMessage("t", payload, now, deliver_after_ms=ms, key=payload.decode())


def _waits(root: str) -> bool:
    """Whether anything is to come yet, or is being decided."""
    found = pending(root)
    return bool(
        found.in_inbox
        or sum(each.count for each in found.backlogs)
        or any(each.deciding for each in outcomes(root, 9_999))
    )


def _ended_within(victim: Victim, seconds: float) -> bool:
    """Wait; whether the process ended meanwhile."""
    try:
        victim.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True

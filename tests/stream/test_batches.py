"""The protocol of a batch (`docs/batches.md`): who dies after a step, whichever it is, goes on, and nothing changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.client.commanding.commands import cancel, reschedule
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.config.options import Options
from pipeline.config.settings import Settings, VirtualClock
from pipeline.config.stages import DISPATCH, INGEST, SETTLE
from pipeline.delta.checkpoints import COMMITS
from pipeline.delta.warehouse import Warehouse
from schemas import CLOSED, DELIVERIES, HELD, INBOX, MESSAGES, REDELIVERY, REPLACED, Table
from tests.support.consuming import acknowledging, received, says
from tests.support.stream import Killed, Step, World, append, at, message, subscribe
from tests.support.worlds import LocalWorld

T0 = 1_700_000_000_000
SECOND, HOUR = 1_000, 3_600_000
BESIDE = ("batch_id", "sequence")
"""Columns in which a run with deaths may differ: a stage that starts may take a batch more."""
HIDING = ("settle.cursors", "dispatch.shelved")
"""Who dies here does not come to the step behind it when the batch is repeated: it is done. So some batches pass."""


@dataclass
class Mortal(LocalWorld):
    """A world that dies after each step of each batch, once; or after none."""

    dies: bool = True
    survived: set[tuple[str, int]] = field(default_factory=set)
    steps: list[tuple[str, int]] = field(default_factory=list)

    def observe(self, step: str, batch_id: int) -> None:
        """Note a step, and die after it when that is new."""
        if self.dead:
            raise Killed
        self.seen.append(step)
        self.steps.append((step, batch_id))
        mortal = self.dies and not (step in HIDING and batch_id % 2 == 0)
        if mortal and (step, batch_id) not in self.survived:
            self.survived.add((step, batch_id))
            self.dead = True
            raise Killed

    def come(self, instant: int) -> None:
        """Bring all stages to an instant, however often they die on the way; what one leaves another takes."""
        self.instant = instant
        for _ in range(2):
            self.drain()
            while not self.alive:
                self.look()
                self.begin()

    def look(self) -> None:
        """The doctor finds nothing wrong after the first death behind a step of a name; she takes a while."""
        if self.seen.count(self.seen[-1]) == 1:
            self.sound()


def script() -> list[Step | int]:
    """Steps, and instants: something for each table of each stage."""
    return [
        acknowledging("t", "s"),
        acknowledging("t", "strict", max_redeliveries=0),
        subscribe("t", "plain"),
        subscribe("t", "paused"),
        subscribe("once", "plain"),
        unique,
        T0,
        paused(so=True),
        append(*(keyed(each) for each in ("done", "failed", "late", "bad", "open"))),
        append(message("refused", after=-1), keyed("soon", 90_000), keyed("parked", 5 * HOUR)),
        append(keyed("cancelled", 80_000), keyed("moved", 70_000)),
        append(*({**keyed(each, 30_000), "topic": "once", "message_key": "k"} for each in ("first", "second"))),
        T0 + SECOND,
        says("nack", "late", after_ms=HOUR),
        T0 + 2 * SECOND,
        says("ack", "done", "late"),
        says("nack", "failed", after_ms=60_000),
        says("nack", "bad", name="strict"),
        says("ack", "open", ledger_id=10**15),
        commanded,
        append(keyed("at once", 500)),
        append({**keyed("third", 40_000), "topic": "once", "message_key": "k"}),
        T0 + 3 * SECOND,
        T0 + 65 * SECOND,
        paused(so=False),
        T0 + 100 * SECOND,
        T0 + HOUR + 2 * SECOND,
        T0 + 6 * HOUR,
    ]


def paused(*, so: bool) -> Step:
    """The subscription `paused` is, or is not any more."""

    def step(world: World) -> None:
        assert set_policy(world.warehouse.root, "t", "paused", paused=so)

    return step


def unique(world: World) -> None:
    """Of messages with one key the newest one counts."""
    assert set_policy(world.warehouse.root, "once", unique="replace")


def commanded(world: World) -> None:
    """A message is cancelled, and one gets another due time."""
    assert cancel(world.warehouse.root, "t", key="cancelled").command_id
    assert reschedule(world.warehouse.root, "t", key="moved", to=at(T0 + 95 * SECOND)).command_id


def keyed(key: str, after: int = 0) -> dict[str, object]:
    """A message whose payload is its key."""
    return {**message(key, after=after), "message_key": key}


def played(folder: Path, *, dies: bool) -> Mortal:
    """The script in a new warehouse."""
    settings = Settings(express_ms=5_000)
    world = Mortal(Warehouse(str(folder / "warehouse")), Options(VirtualClock(), settings), dies=dies)
    world.begin_stages("ingest", "schedule", "dispatch", "settle")
    for step in script():
        if isinstance(step, int):
            world.come(step)
        else:
            step(world)
    world.sound()
    return world


def facts(world: Mortal, table: Table) -> list[tuple[str, ...]]:
    """The rows of a table in a fixed order, less the columns in which deaths may show."""
    names = [name for name in table.schema.names if name not in BESIDE]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> Mortal:
    """The run that nobody disturbed."""
    return played(tmp_path_factory.mktemp("unkilled"), dies=False)


def test_who_dies_after_each_step_of_each_batch_does_each_thing_once(unkilled: Mortal, tmp_path: Path) -> None:
    """All tables have the same rows; the doctor finds nothing wrong after any of the deaths."""
    killed = played(tmp_path, dies=True)
    for table in (INBOX, MESSAGES, REPLACED, REDELIVERY, HELD, DELIVERIES, CLOSED):
        assert facts(killed, table) == facts(unkilled, table), table.name
    for name in ("s", "strict", "plain", "paused"):
        assert sorted(received(killed, name)) == sorted(received(unkilled, name)), name
    assert {step for step, _ in killed.survived} == set(unkilled.seen)


@pytest.mark.parametrize("stage", [INGEST, DISPATCH, SETTLE])
def test_the_script_has_rows_for_each_table_and_a_batch_commits_in_the_stated_order(
    unkilled: Mortal, stage: str
) -> None:
    """A table that is added to a stage comes into the script, too."""
    order = [f"{stage}.{table.name}" for table in COMMITS[stage]]
    steps = [each for each in unkilled.steps if each[0] in order]
    assert {step for step, _ in steps} == set(order)
    # What dispatch has prepared becomes visible later than the batch, and is accounted for by rows of several batches.
    of_batches = [each for each in steps if each[0] not in ("dispatch.deliveries", "dispatch.publications")]
    for number in {batch for _, batch in of_batches}:
        places = [order.index(step) for step, batch in of_batches if batch == number]
        assert places == sorted(places), number

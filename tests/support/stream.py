"""Stream tests as lists of steps, under the virtual clock.

A script appends to the inbox, moves the clock, kills, restarts and looks at the tables. A failed step says which one
of the script it was. Nothing sleeps: stages run in lockstep, each until it has nothing left to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import StructType

from pipeline.client.create import create_all
from pipeline.config.options import Options
from pipeline.config.session import PARTITIONS, set_meanwhile
from pipeline.config.settings import Clock, Settings, VirtualClock
from pipeline.config.sparkversion import release
from pipeline.config.stages import ALL_STAGES
from pipeline.delta import deltars
from pipeline.delta.checkpoints import Origin
from pipeline.delta.warehouse import Warehouse
from pipeline.service.lockstep import reach
from pipeline.service.rebuild import rebuild
from pipeline.service.run import Stage, start, stop_all
from schemas import DELIVERIES, INBOX, SUBSCRIPTIONS, Table
from state.units import Ms
from tests.support.examined import sound
from tests.support.spark import session


def at(ms: int) -> datetime:
    """An instant in ms as a timestamp."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class Killed(Exception):
    """Stands for the death of the process."""


@dataclass
class World:
    """A warehouse under test, and the stages that run on it."""

    warehouse: Warehouse
    options: Options
    running: list[Stage] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    progress: list[Any] = field(default_factory=list)
    fatal: str | None = None
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)  # others do it once, right behind a step
    instant: int = 0
    apart: bool = False
    """Whether each stage is a process of its own: when one dies, the others stay."""
    died: str = ""
    """The stage in which the process died last."""
    dead: bool = False
    """The process has died: no stage takes another step, also one that runs by itself meanwhile."""

    def observe(self, step: str, batch_id: int) -> None:
        """Note a step; die after it when the script says so."""
        if self.dead:
            raise Killed(f"the process was dead before {step} of batch {batch_id}")
        self.seen.append(step)
        self.meanwhile.pop(step, object)()
        if step == self.fatal:
            self.fatal, self.dead = None, not self.apart
            self.died = step.partition(".")[0]
            raise Killed(f"after {step} of batch {batch_id}")

    def born(self) -> Options:
        """What stages of a new process are started with: it notes their steps, and may die after one."""
        self.dead = False
        return replace(self.options, observe=self.observe)

    def rows(self, table: Table) -> list[Row]:
        """All rows of a table, as Spark would give them; read by delta-rs, which starts no job."""
        opened = deltars.open_table(self.warehouse.root, table)
        schema = StructType.fromJson(json.loads(opened.schema().to_json()))
        rows: list[Row] = ArrowTableToRowsConversion.convert(deltars.arrow_of("SELECT * FROM t", t=opened), schema)
        return rows

    def begin(self) -> None:
        """Start all stages and let them finish what a dead process left; a killed one takes all down."""
        options = self.born()
        try:
            for stage in ALL_STAGES:
                self.running.append(start(self.warehouse, stage, options))
        except Killed:
            self.end()
            return
        if self.instant:
            self.drain()

    def begin_one(self, name: str) -> None:
        """Start a stage that does not run, beside the others, and let all come to the present."""
        options = self.born()
        try:
            self.running.append(start(self.warehouse, name, options))
        except Killed:
            return
        self.running.sort(key=lambda stage: ALL_STAGES.index(stage.name))
        self.drain()

    def end_one(self, name: str) -> None:
        """Stop one stage; the others go on."""
        (stage,) = (each for each in self.running if each.name == name)
        self.progress += stage.query.recentProgress
        self.running.remove(stage)
        stage.stop()

    def end(self) -> None:
        """Stop all stages, whatever state they are in."""
        for stage in self.running:
            self.progress += stage.query.recentProgress
        running, self.running = self.running, []
        stop_all(running)

    def lose(self, *stages: str) -> None:
        """Stop all stages, and lose the checkpoints of some.

        Spark goes on to look after the state of a query that has ended, and would write into a folder that is gone.
        """
        self.end()
        jvm: Any = self.warehouse.spark.sparkContext._jvm
        stores = getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$")
        # `stop` alone waits six minutes for a look that is on its way, while it holds the lock that the look waits for.
        if release() >= (4, 1):  # 4.0 has no such call
            stores.stopMaintenanceTaskWithoutLock()
        stores.stop()
        for stage in stages:
            rmtree(self.warehouse.checkpoint(stage))

    def start(self, stage: str, clock: Clock | None = None) -> None:
        """Start a stage, by another clock when that is given, and stop it; most such starts are refused."""
        start(self.warehouse, stage, self.options if clock is None else Options(clock)).stop()

    def rebuild(self, *stages: str, latest: int | None = None, **changes: int) -> list[Origin]:
        """Rebuild stages that are stopped, perhaps with other settings, or with a clock set back to an instant."""
        warehouse, options = self.warehouse.within(session()), self.changed(changes)
        return [rebuild(warehouse, stage, options, latest=None if latest is None else Ms(latest)) for stage in stages]

    def changed(self, changes: Mapping[str, int]) -> Options:
        """The options, with some settings changed."""
        settings = replace(self.options.settings, **changes)  # type: ignore[arg-type] # no test turns a flag
        return replace(self.options, settings=settings)

    def drain(self) -> None:
        """Bring every stage to the current instant, one after the other; a killed one takes all down, or itself."""
        try:
            reach(self.running, self.warehouse, self.instant, self.produce)
        except (StreamingQueryException, Killed) as error:
            if isinstance(error, StreamingQueryException) and "Killed" not in str(error):
                raise
            self.fall()

    def fall(self) -> None:
        """After a death: the stage that died ends, or all do."""
        if self.apart:
            self.end_one(self.died)
        else:
            self.end()

    def sound(self) -> None:
        """The doctor finds nothing wrong, whatever state the stages are in."""
        sound(self.warehouse.root)

    def produce(self) -> None:
        """Append what waits to the inbox, in one commit."""
        rows, self.waiting = self.waiting, []
        if rows:
            deltars.append(self.warehouse.root, INBOX, deltars.rows_of(INBOX, rows))


def dropped(progress: Sequence[Any]) -> int:
    """How many rows Spark dropped as late, which only this metric tells; stages without state have none to tell."""
    return sum(operator.numRowsDroppedByWatermark for each in progress for operator in each.stateOperators)


Step = Callable[[World], None]


@dataclass(frozen=True)
class Append:
    """Rows for the inbox when the clock moves next."""

    rows: tuple[dict[str, Any], ...]

    def __call__(self, world: World) -> None:
        """Let them wait for it."""
        world.waiting.extend(self.rows)


def append(*rows: dict[str, Any]) -> Step:
    """Append rows to the inbox when the clock moves next."""
    return Append(rows)


def message(
    payload: str,
    topic: str | None = "t",
    deliver_at: int | None = None,
    after: int | None = None,
    published: int | None = None,
) -> dict[str, Any]:
    """A row of the inbox; times in ms."""
    given = {"deliver_at": deliver_at, "publish_time": published}
    times = {name: at(ms) for name, ms in given.items() if ms is not None}
    return {"topic": topic, "payload": payload.encode(), "deliver_after_ms": after, **times}


@dataclass(frozen=True)
class Advance:
    """The clock moves to an instant (ms)."""

    instant: int

    def __call__(self, world: World) -> None:
        """Every stage does what there is to do."""
        world.instant = self.instant
        world.drain()


def advance(instant: int) -> Step:
    """Move the clock to an instant (ms) and let every stage do what there is to do."""
    return Advance(instant)


def subscribe(topic: str, name: str, tick_ms: int = 1, start: str = "latest", kind: str = "shared") -> Step:
    """Register a subscription."""

    def step(world: World) -> None:
        line = {"topic": topic, "subscription": name, "type": kind, "start": start, "tick_ms": tick_ms, "active": True}
        deltars.append(world.warehouse.root, SUBSCRIPTIONS, deltars.rows_of(SUBSCRIPTIONS, [line]))

    return step


def unsubscribe(topic: str, name: str) -> Step:
    """Take a subscription off the registry."""

    def step(world: World) -> None:
        table = deltars.open_table(world.warehouse.root, SUBSCRIPTIONS)
        table.update({"active": "false"}, predicate=f"topic = '{topic}' AND subscription = '{name}'")

    return step


@dataclass(frozen=True)
class Kill:
    """The process dies right after the next step of this name."""

    after: str

    def __call__(self, world: World) -> None:
        """Let it be fatal."""
        world.fatal = self.after


def kill_after(step_name: str) -> Step:
    """Let the process die right after the next such step."""
    return Kill(step_name)


def stop() -> Step:
    """Stop all stages in good order."""
    return World.end


@dataclass(frozen=True)
class Restart:
    """All stages stop and start again, with changed settings; the process may die once more, after a step."""

    fatal: str | None
    changes: tuple[tuple[str, int], ...]

    def __call__(self, world: World) -> None:
        """Stop what runs, and start."""
        world.end()
        self.change(world)
        world.begin()

    def change(self, world: World) -> None:
        """Set what the next start finds; who was to die is dead by now."""
        assert world.fatal is None, f"nobody was killed after {world.fatal}"
        world.options = world.changed(dict(self.changes))
        world.fatal = self.fatal


def restart(fatal: str | None = None, **changes: int) -> Step:
    """Start again, with changed settings when given; to die once more, after a step, when that is given."""
    return Restart(fatal, tuple(changes.items()))


def revive(fatal: str | None = None, **changes: int) -> Step:
    """Start the stage again that died, with changed settings when given; somebody may die once more, after a step."""
    how = Restart(fatal, tuple(changes.items()))

    def step(world: World) -> None:
        name = world.died
        # From here on those that live may die.
        how.change(world)
        world.begin_one(name)

    return step


def each_by_itself() -> Step:
    """From now on each stage is a process of its own, and dies alone."""

    def step(world: World) -> None:
        world.apart = True

    return step


def delivered(*expected: str, subscription: str = "s", topic: str | None = None) -> Step:
    """Exactly these payloads were delivered to a subscription so far, in this order; of all topics, or of one."""

    def step(world: World) -> None:
        assert payloads(world, subscription, topic) == list(expected)

    return step


def payloads(world: World, subscription: str = "s", topic: str | None = None) -> list[str]:
    """The payloads delivered to a subscription, in order; of all topics, or of one."""
    mine = [row for row in world.rows(DELIVERIES) if row["subscription"] == subscription]
    mine = [row for row in mine if topic in (None, row["topic"])]
    return [bytes(row["payload"]).decode() for row in sorted(mine, key=lambda r: (r["batch_id"], r["sequence"]))]


def check(look: Callable[[World], None]) -> Step:
    """Any other look at the world."""
    return look


def void(_: object) -> None:
    """A step says nothing."""


def same(found: object, wanted: object) -> None:
    """Both are equal."""
    assert found == wanted


@cache
def empty_warehouse(segment_ms: int) -> str:
    """The folder of a warehouse just made, to be copied."""
    folder = mkdtemp()
    create_all(folder, segment_ms)
    return folder


def play(
    spark: SparkSession,
    folder: str,
    steps: Sequence[Step],
    settings: Settings | None = None,
    segment_ms: int = 300_000,
    stores: int = 1,
) -> World:
    """Make a warehouse, start the stages, take the steps, stop. Spark may not have dropped a row as late meanwhile.

    Each store of the state costs a tenth of an instant. The main path and scripts about subscriptions, their lives,
    deaths of all stages, rebuilds and the order within a release take two. With one store the rows of a key are always
    together, and a fault that scatters them would not show.
    """
    options = Options(VirtualClock(), settings or Settings())
    world = World(Warehouse(folder, spark), options)
    copytree(empty_warehouse(segment_ms), folder)
    with set_meanwhile(spark, {PARTITIONS: str(stores)}):
        take(world, steps)
    assert dropped(world.progress) == 0, f"{dropped(world.progress)} rows were dropped by the watermark"
    return world


def take(world: World, steps: Sequence[Step]) -> None:
    """Start the stages of a world, take the steps, stop."""
    world.begin()
    try:
        for number, step in enumerate(steps):
            try:
                step(world)
            except BaseException as error:
                error.add_note(f"in step {number} of {len(steps)}: {getattr(step, '__qualname__', step)}")
                raise
        assert world.fatal is None, f"nobody was killed after {world.fatal}"
    finally:
        world.end()

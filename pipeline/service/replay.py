"""Replay: a table of messages under a virtual clock, as fast as the machine goes, with the same result each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.errors import BadSetting
from pipeline.config.options import Observer, Options, nobody
from pipeline.config.session import kept
from pipeline.config.settings import LAST_INSTANT_MS, Settings, VirtualClock
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.planner.planner import Planner
from pipeline.service.lockstep import reach
from pipeline.service.run import start_all, stop_all
from schemas import INBOX

_NUMBER = "instant_number"


@dataclass(frozen=True)
class ReplayClock:
    """The instants of a replay, ms UTC: `first`, then every `step`, then `last`."""

    first: int
    last: int
    step: int

    def __post_init__(self) -> None:
        """Refuse a course that goes nowhere."""
        if not 0 < self.first <= self.last <= LAST_INSTANT_MS:
            raise BadSetting("first, last", (self.first, self.last), f"1 <= first <= last <= {LAST_INSTANT_MS}")
        if self.step < 1:
            raise BadSetting("step", self.step, "1 ms or more")

    def __iter__(self) -> Iterator[int]:
        """The instants in order."""
        yield from range(self.first, self.last, self.step)
        yield self.last

    def __len__(self) -> int:
        """How many instants there are."""
        return -(-(self.last - self.first) // self.step) + 1


def replay(
    warehouse: Warehouse,
    messages: DataFrame,
    course: ReplayClock,
    *,
    settings: Settings | None = None,
    observe: Observer = nobody,
    on_instant: Callable[[int], bool | None] | None = None,
) -> None:
    """Run all stages over a course. Called again with the same arguments after a crash, it goes on where it was.

    Args:
        warehouse: made by `create_all`, with its subscriptions.
        messages: columns of `inbox`; those that they lack are NULL. A row enters when the clock passes its
            `publish_time`, and one without a `publish_time` with the first instant.
        course: the instants.
        settings: sizes and limits.
        observe: told of each step of each stage.
        on_instant: called when all stages have reached an instant. When it says True, it has commanded something, which
            the stages follow before the next instant.

    Raises:
        StreamingQueryException: a stage failed; the reason is in it.
    """
    source = entering(messages, course)
    options = Options(VirtualClock(), settings or Settings(), observe=observe)
    with kept(source):
        running = start_all(warehouse, options)
        try:
            now, producer = [course.first], Producer(warehouse, source, course)
            planner = Planner(warehouse, lambda: now[0], settings, observe=observe, step_ms=course.step)

            def produce(number: int) -> None:
                planner.step()
                producer.append(number)

            for number, instant in enumerate(course):
                now[0] = instant
                reach(running, warehouse, instant, partial(produce, number))
                if on_instant is not None and on_instant(instant):
                    reach(running, warehouse, instant)
        finally:
            stop_all(running)


def entering(messages: DataFrame, course: ReplayClock) -> DataFrame:
    """Rows of the inbox that enter in a course, each with the number of its instant: the first not before it."""
    after = F.unix_micros("publish_time") - course.first * 1_000
    step = F.lit(course.step * 1_000)
    steps = F.call_function("div", after + step - 1, step)
    number = F.when(after > 0, F.least(steps, F.lit(len(course) - 1))).otherwise(0)
    in_time = F.col("publish_time").isNull() | (after <= (course.last - course.first) * 1_000)
    known = set(messages.columns)
    lacking = {each.name: F.lit(None).cast(each.dataType) for each in INBOX.schema.fields if each.name not in known}
    return messages.where(in_time).withColumns(lacking).select(*INBOX.columns.names, number.alias(_NUMBER))


class Producer:
    """Appends the rows of each instant to the inbox, once: a replay that is taken up again finds them there."""

    def __init__(self, warehouse: Warehouse, source: DataFrame, course: ReplayClock) -> None:
        """Ask once which instants have rows, and how far an earlier attempt came.

        Args:
            warehouse: whose inbox it is.
            source: what `entering` gives, persisted.
            course: the instants.
        """
        self._source = source
        self._filled = {row[_NUMBER] for row in source.select(_NUMBER).distinct().collect()}
        self._owner = f"{course.first}-{course.last}-{course.step}"
        self._sink = Sink(warehouse, INBOX, f"replay {self._owner}")
        self._done = -1 if self._sink.last is None else self._sink.last.batch

    def append(self, number: int) -> None:
        """Append what enters at an instant, in one file, in the order of publication."""
        if number in self._filled and number > self._done:
            rows = self._source.where(F.col(_NUMBER) == number).drop(_NUMBER)
            self._sink.append(rows.coalesce(1).sortWithinPartitions("publish_time"), self._owner, number, {})

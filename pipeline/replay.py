"""Replay: a table of messages under a virtual clock, as fast as the machine goes, with the same result each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.errors import BadSetting
from pipeline.lockstep import reach
from pipeline.run import Options, start_all, stop_all
from pipeline.settings import LAST_INSTANT_MS, Settings, VirtualClock
from pipeline.sinks import Observer, nobody
from pipeline.tables import Warehouse
from schemas import INBOX


@dataclass(frozen=True)
class Course:
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
    spark: SparkSession,
    warehouse: Warehouse,
    messages: DataFrame,
    course: Course,
    *,
    settings: Settings | None = None,
    observe: Observer = nobody,
    on_instant: Callable[[int], None] | None = None,
) -> None:
    """Run all stages over a course. Called again with the same arguments after a crash, it goes on where it was.

    Args:
        spark: a session with Delta.
        warehouse: made by `create_all`, with its subscriptions.
        messages: the columns of `inbox`; a row enters when the clock passes its `publish_time`, and one without a
            `publish_time` with the first instant.
        course: the instants.
        settings: sizes and limits.
        observe: told of each step of each stage.
        on_instant: called when all stages have reached an instant.

    Raises:
        StreamingQueryException: a stage failed; the reason is in it.
    """
    source = messages.select(*INBOX.schema.names).persist(StorageLevel.MEMORY_AND_DISK)
    options = Options(VirtualClock(), settings or Settings(), observe=observe)
    running = start_all(spark, warehouse, options)
    try:
        before: int | None = None
        for number, instant in enumerate(course):
            entering = _entering(source, before, instant)
            reach(running, warehouse, instant, lambda rows=entering, n=number: _append(warehouse, rows, course, n))  # type: ignore[misc]
            before = instant
            if on_instant is not None:
                on_instant(instant)
    finally:
        stop_all(running)
        source.unpersist()


def _entering(source: DataFrame, before: int | None, instant: int) -> DataFrame:
    """What is published after `before` and not after `instant` (ms)."""
    published = F.col("publish_time")
    until = published <= F.timestamp_millis(F.lit(instant))
    if before is None:
        return source.where(published.isNull() | until)
    return source.where((published > F.timestamp_millis(F.lit(before))) & until)


def _append(warehouse: Warehouse, rows: DataFrame, course: Course, number: int) -> None:
    """Append one instant's rows, once: a replay that is taken up again finds them there."""
    if rows.isEmpty():
        return
    ordered = rows.coalesce(1).sortWithinPartitions("publish_time")
    app = f"delayline-replay-{course.first}-{course.last}-{course.step}"
    writer = ordered.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number)
    writer.save(warehouse.path(INBOX))

"""The metrics for Prometheus, in a registry of their own. `docs/metrics.md` says what each means."""

from collections import Counter as Counts
from collections.abc import Iterable, Sequence
from functools import lru_cache
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge

from pipeline.client.insight.backlogfigures import BacklogFigures
from pipeline.config.options import Delivered, SettleBatch, StageListener
from pipeline.config.printed import printable
from pipeline.service.watch.lateness import OTHER, Lateness, SubscriptionLateness
from pipeline.service.watch.line import Publication
from pipeline.service.watch.progress import Progress


@lru_cache(maxsize=4_096)
def _names(topic: str, subscription: str) -> tuple[str, str]:
    """Values of labels: a page of metrics is read by people, too."""
    return printable(topic), printable(subscription)


class Metrics(StageListener):
    """All metrics of a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lateness, self._late_by = Lateness(), SubscriptionLateness()
        for each in (self._lateness, self._late_by):
            self.registry.register(each)
        stage, subscription = ("stage",), ("topic", "subscription")
        self._up = self._gauge("up", "1 while the stage runs, else 0", *stage)
        self._batches = self._counter("batches", "Batches that ended", *stage)
        self._batch_seconds = self._counter("batch_seconds", "Time of batches, by Spark's phases", *stage, "phase")
        self._ways = self._counter(
            "batches_by", "Batches with rows, by who worked on them: driver, or why Spark", *stage, "way"
        )
        self._rows = self._counter("rows_in", "Rows taken from the stage's source table", *stage)
        self._instant = self._gauge("instant_seconds", "The instant that the last batch stands for, Unix time", *stage)
        self._behind = self._gauge("behind_seconds", "The end of the last batch less its instant, 0 when ahead", *stage)
        self._watermark = self._gauge(
            "watermark_seconds", "The event time that the last batch began with, Unix time", *stage
        )
        self._version = self._gauge("source_version", "The version of the source table that is being read", *stage)
        self._state_rows = self._gauge("state_rows", "Keys in the streaming state", *stage)
        self._state_bytes = self._gauge("state_bytes", "Memory of the state store", *stage)
        self._dropped = self._counter("rows_dropped_by_watermark", "Rows lost behind the watermark; must be 0", *stage)
        self._delivered = self._counter("delivered", "Deliveries made visible")
        self._commits = self._counter("publications", "Commits that made some visible")
        self._pending = self._gauge("pending", "Accepted and not yet delivered")
        self._held = self._gauge("held", "Due, and held by dispatch")
        self._expiring = self._gauge("expiring", "Due, and past their TTL before they are handed over")
        self._next_hour = self._gauge("due_next_hour", "Pending, and due within an hour of the last count")
        self._next_due = self._gauge("next_due_seconds", "The earliest due time of what is pending, Unix time")
        self._last_due = self._gauge(
            "last_due_seconds", "The minute in which the last of what is pending is due, Unix time"
        )
        self._counted = self._gauge("counted_seconds", "When what is pending was counted last, Unix time")
        for gauge in self._of_a_count:
            gauge.set(float("nan"))
        self._left = self._gauge("source_behind", "Rows that a source has yet to read; NaN: nobody knows", *stage)
        self._late = self._gauge(
            "sink_late_seconds",
            "Since when what a sink publishes next has been visible, 0 when there is nothing; NaN: nobody knows",
            *subscription,
        )
        self._rejected = self._counter("rejected", "Rows of the inbox that ingest rejected", "reason")
        self._zones = self._counter("unknown_zones", "Messages that name a time zone for a window that is none")
        self._left_out = self._counter(
            "left_out", "Messages that dispatch left out by a policy of their subscription", *subscription, "reason"
        )
        self._outstanding = self._gauge("outstanding", "Released and not settled", *subscription)
        self._waiting = self._gauge("waiting", "Failed, and due again later", *subscription)
        self._acked = self._counter("acked", "Messages settled by an acknowledgement", *subscription)
        self._returned = self._counter("returned", "Messages that failed and come again", *subscription, "cause")
        self._dead = self._counter("dead_letters", "Messages given up as dead letters", *subscription)
        self._refused = self._counter("events_refused", "Events of consumers that were refused")
        self._lock, self._taken = Lock(), Counts[str]()
        self._named, self._unknown = set[tuple[str, str]](), set[tuple[str, str]]()

    def started(self, stage: str) -> None:
        """A stage runs; what can be counted of it begins with 0, so that a first mistake is seen as a change."""
        self._up.labels(stage).set(1)
        self._dropped.labels(stage)

    def ended(self, stage: str) -> None:
        """A stage ended."""
        self._up.labels(stage).set(0)

    def progressed(self, batch: Progress) -> None:
        """A batch ended."""
        stage = batch.stage
        self._batches.labels(stage).inc()
        self._rows.labels(stage).inc(batch.rows)
        self._dropped.labels(stage).inc(batch.dropped)
        for phase, ms in batch.duration_ms.items():
            self._batch_seconds.labels(stage, phase).inc(ms / 1_000)
        if batch.instant_ms is not None:
            self._instant.labels(stage).set(batch.instant_ms / 1_000)
            self._behind.labels(stage).set(max(0, batch.ended_ms - batch.instant_ms) / 1_000)
        if batch.watermark_ms is not None:
            self._watermark.labels(stage).set(batch.watermark_ms / 1_000)
        for gauge, value in (
            (self._version, batch.version),
            (self._state_rows, batch.state_rows),
            (self._state_bytes, batch.state_bytes),
        ):
            if value is not None:
                gauge.labels(stage).set(value)

    def took(self, stage: str, rows: int) -> None:
        """A stage read rows of its source by itself: they count with its next batch."""
        with self._lock:
            self._taken[stage] += rows

    def taken(self, stage: str) -> int:
        """How many a stage read by itself since the last call: Spark has not counted them."""
        with self._lock:
            return self._taken.pop(stage, 0)

    def routed(self, stage: str, way: str) -> None:
        """A batch with rows was worked on in a way."""
        self._ways.labels(stage, way).inc()

    def rejected(self, reason: str, count: int) -> None:
        """Ingest rejected rows of the inbox."""
        self._rejected.labels(reason).inc(count)

    def unknown_zones(self, count: int) -> None:
        """Ingest took messages whose own zone is none."""
        self._zones.inc(count)

    def left_out(self, topic: str, subscription: str, reason: str, count: int) -> None:
        """Dispatch left messages out by a policy."""
        self._left_out.labels(*self._labels(topic, subscription), reason).inc(count)

    def behind(self, source: str, rows: int | None) -> None:
        """A source has so many rows yet to read; None: nobody knows."""
        self._left.labels(printable(source)).set(float("nan") if rows is None else rows)

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:
        """So long ago became visible what a sink publishes next; None: nobody knows, or it has ended."""
        self._late.labels(*self._labels(topic, subscription)).set(float("nan") if seconds is None else seconds)

    def published(
        self, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int, shares: Sequence[Delivered] = ()
    ) -> None:
        """A commit made deliveries visible."""
        self._commits.inc()
        self._delivered.inc(count)
        self._lateness.add(Publication.of(count, first_due_ms, last_due_ms, committed_ms))
        known = shares or [Delivered(*OTHER, count, first_due_ms, last_due_ms)]
        self._named.update(
            self._late_by.add(((_names(each.topic, each.subscription), each) for each in known), committed_ms)
        )

    def settled(self, batch: SettleBatch) -> None:
        """A batch of settle ended: it refused events, and changed the figures of some subscriptions."""
        self._refused.inc(batch.refused)
        for each in batch.subscriptions:
            name = self._labels(each.topic, each.subscription)
            self._outstanding.labels(*name).set(each.outstanding)
            self._waiting.labels(*name).set(each.waiting)
            self._acked.labels(*name).inc(each.acked)
            self._dead.labels(*name).inc(each.dead_letters)
            for cause, count in each.returned.items():
                self._returned.labels(*name, cause).inc(count)

    def forget_others(self, names: Iterable[tuple[str, str]]) -> None:
        """Leave out what is of other subscriptions than these (topic and name), and was so at the last call as well.

        Stages that have heard of one earlier, or know of its end later, tell of it meanwhile.
        """
        known = {_names(*name) for name in names}
        unknown = set(self._named) - known
        for topic, subscription in unknown & self._unknown:
            for family in self._of_subscriptions:
                family.remove_by_labels({"topic": topic, "subscription": subscription})
            self._named.discard((topic, subscription))
        self._unknown = unknown

    def _labels(self, topic: str, subscription: str) -> tuple[str, str]:
        """Values of labels, which are noted."""
        names = _names(topic, subscription)
        self._named.add(names)
        return names

    @property
    def _of_subscriptions(self) -> tuple[Gauge | Counter | SubscriptionLateness, ...]:
        figures = (self._late, self._outstanding, self._waiting, self._late_by)
        return (*figures, self._left_out, self._acked, self._returned, self._dead)

    @property
    def _of_a_count(self) -> tuple[Gauge, ...]:
        figures = (self._pending, self._held, self._expiring, self._next_hour)
        return (*figures, self._next_due, self._last_due, self._counted)

    def waiting(self, figures: BacklogFigures) -> None:
        """What is pending was counted."""
        self._pending.set(figures.count)
        self._held.set(figures.held)
        self._expiring.set(figures.expiring)
        self._next_hour.set(figures.next_hour)
        self._counted.set(figures.counted_ms / 1_000)
        for gauge, ms in ((self._next_due, figures.next_due_ms), (self._last_due, figures.last_due_ms)):
            gauge.set(float("nan") if ms is None else ms / 1_000)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"delayline_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"delayline_{name}", text, labels, registry=self.registry)

"""The metrics for Prometheus, in a registry of their own. `docs/metrics.md` says what each means."""

from collections.abc import Iterable, Iterator
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from pipeline.config.watching import Settled
from pipeline.service.watch.lateness import Publication
from pipeline.service.watch.progress import Progress

LATE_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""Bounds of the lateness histogram, seconds."""


class Lateness(Collector):
    """A histogram that takes the deliveries of a commit together; the client library's takes them one by one."""

    def __init__(self) -> None:
        """Nothing was late yet."""
        self._lock, self._within, self._count, self._sum = Lock(), [0.0] * len(LATE_S), 0, 0.0

    def add(self, part: Publication) -> None:
        """Count the deliveries of a commit."""
        with self._lock:
            self._within = [known + part.within(bound) for known, bound in zip(self._within, LATE_S, strict=True)]
            self._count += part.count
            self._sum += part.sum_s

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histogram as it is now."""
        with self._lock:
            buckets = [(str(bound), within) for bound, within in zip(LATE_S, self._within, strict=True)]
            buckets, total = [*buckets, ("+Inf", float(self._count))], self._sum
        yield HistogramMetricFamily(
            "delayline_lateness_seconds", "Visible less due, of deliveries", buckets=buckets, sum_value=total
        )


class SettleMetrics:
    """What is open, and what became of messages, of each subscription that acknowledges."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        names = ["topic", "subscription"]
        self._outstanding = Gauge("delayline_outstanding", "Released and not settled", names, registry=registry)
        self._waiting = Gauge("delayline_waiting", "Failed, and due again later", names, registry=registry)
        self._acked = Counter("delayline_acked", "Messages settled by an acknowledgement", names, registry=registry)
        self._returned = Counter(
            "delayline_returned", "Messages that failed and come again", [*names, "cause"], registry=registry
        )
        self._dead = Counter("delayline_dead_letters", "Messages given up as dead letters", names, registry=registry)
        self._refused = Counter("delayline_events_refused", "Events of consumers that were refused", registry=registry)

    def settled(self, refused: int, subscriptions: Iterable[Settled]) -> None:
        """A batch of settle ended."""
        self._refused.inc(refused)
        for each in subscriptions:
            name = each.topic, each.subscription
            self._outstanding.labels(*name).set(each.outstanding)
            self._waiting.labels(*name).set(each.waiting)
            self._acked.labels(*name).inc(each.acked)
            self._dead.labels(*name).inc(each.dead_letters)
            for cause, count in each.returned.items():
                self._returned.labels(*name, cause).inc(count)


class Metrics:
    """All metrics of a process."""

    def __init__(self) -> None:
        """Register them."""
        self.registry = CollectorRegistry()
        self._lateness = Lateness()
        self.registry.register(self._lateness)
        self._up = self._gauge("up", "1 while the stage runs, else 0")
        self._batches = self._counter("batches", "Batches that ended")
        self._batch_seconds = self._counter("batch_seconds", "Time of batches, by Spark's phases", "phase")
        self._ways = self._counter(
            "batches_by", "Batches with rows, by who worked on them: driver, or why Spark", "way"
        )
        self._rows = self._counter("rows_in", "Rows taken from the stage's source table")
        self._instant = self._gauge("instant_seconds", "The instant that the last batch stands for, Unix time")
        self._behind = self._gauge("behind_seconds", "The end of the last batch less its instant, 0 when ahead")
        self._watermark = self._gauge("watermark_seconds", "The event time that the last batch began with, Unix time")
        self._version = self._gauge("source_version", "The version of the source table that is being read")
        self._state_rows = self._gauge("state_rows", "Keys in the streaming state")
        self._state_bytes = self._gauge("state_bytes", "Memory of the state store")
        self._dropped = self._counter("rows_dropped_by_watermark", "Rows lost behind the watermark; must be 0")
        self._delivered = Counter("delayline_delivered", "Deliveries made visible", registry=self.registry)
        self._commits = Counter("delayline_publications", "Commits that made some visible", registry=self.registry)
        self._pending = Gauge("delayline_pending", "Accepted and not yet delivered", registry=self.registry)
        self._held = Gauge("delayline_held", "Due, and held by dispatch", registry=self.registry)
        self._next_due = Gauge(
            "delayline_next_due_seconds", "The earliest due time of what is pending, Unix time", registry=self.registry
        )

        self._left = self._gauge("source_behind", "Rows that a source has yet to read; NaN: nobody knows")
        self._late = Gauge(
            "delayline_sink_late_seconds",
            "Since when what a sink publishes next has been visible, 0 when there is nothing; NaN: nobody knows",
            ["topic", "subscription"],
            registry=self.registry,
        )
        self._left_out = Counter(
            "delayline_left_out",
            "Messages that dispatch left out by a policy of their subscription",
            ["topic", "subscription", "reason"],
            registry=self.registry,
        )
        self._settling = SettleMetrics(self.registry)

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

    def routed(self, stage: str, way: str) -> None:
        """A batch with rows was worked on in a way."""
        self._ways.labels(stage, way).inc()

    def left_out(self, topic: str, subscription: str, reason: str, count: int) -> None:
        """Dispatch left messages out by a policy."""
        self._left_out.labels(topic, subscription, reason).inc(count)

    def source_behind(self, source: str, rows: int | None) -> None:
        """A source has so many rows yet to read; None: nobody knows."""
        self._left.labels(source).set(float("nan") if rows is None else rows)

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:
        """So long ago became visible what a sink publishes next; None: nobody knows, or it has ended."""
        self._late.labels(topic, subscription).set(float("nan") if seconds is None else seconds)

    def published(self, part: Publication) -> None:
        """A commit made deliveries visible."""
        self._commits.inc()
        self._delivered.inc(part.count)
        self._lateness.add(part)

    def settled(self, refused: int, subscriptions: Iterable[Settled]) -> None:
        """A batch of settle refused so many events, and changed the figures of some subscriptions."""
        self._settling.settled(refused, subscriptions)

    def waiting(self, count: int, next_due_ms: int | None, held: int) -> None:
        """So many are pending; the first of them is due then, ms UTC; so many of them are held."""
        self._pending.set(count)
        self._held.set(held)
        self._next_due.set(float("nan") if next_due_ms is None else next_due_ms / 1_000)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"delayline_{name}", text, ["stage"], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"delayline_{name}", text, ["stage", *labels], registry=self.registry)

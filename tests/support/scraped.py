"""What Prometheus finds when it asks for the metrics of a process."""

from __future__ import annotations

from prometheus_client import generate_latest

from pipeline.config.options import Delivered, SettleBatch, Settled
from pipeline.service.watch.metrics import Metrics
from pipeline.service.watch.process import Watcher
from pipeline.service.watch.progress import Progress

_AT = 1_000_000


def scraped(metrics: Metrics) -> dict[str, float]:
    """The figures, by name and labels."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def full_watcher() -> Watcher:
    """A watcher that was told of each thing that stages, sources, sinks and settle tell of."""
    watcher = Watcher()
    watcher.started("schedule")
    times = {"ended_ms": _AT + 1_000, "instant_ms": _AT, "watermark_ms": 1}
    watcher.progressed(
        Progress("schedule", 3, rows=500, duration_ms={"addBatch": 6}, version=9, state_rows=1, state_bytes=1, **times)
    )
    watcher.published(1, _AT, _AT, _AT, [Delivered("orders", "billing", 1, _AT, _AT)])
    watcher.routed("schedule", "driver")
    watcher.rejected("max_delay_exceeded", 3)
    watcher.left_out("orders", "billing", "expired", 2)
    watcher.behind("source-orders", None)
    watcher.sink_late("orders", "billing", 0.5)
    settled = Settled("orders", "billing", 5, 3, 90, {"nack": 2}, 1)
    watcher.settled(SettleBatch(1, 100, _AT, _AT + 300, _AT, 8, 0, (settled,)))
    return watcher


def exported() -> dict[str, set[str]]:
    """The labels of each time series that a process exports, by its name in Prometheus."""
    samples = (sample for family in full_watcher().registry.collect() for sample in family.samples)
    return {sample.name: set(sample.labels) for sample in samples}

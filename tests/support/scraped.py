"""What Prometheus finds when it asks for the metrics of a process."""

from __future__ import annotations

from prometheus_client import generate_latest

from pipeline.service.watch.metrics import Metrics


def scraped(metrics: Metrics) -> dict[str, float]:
    """The figures, by name and labels."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

"""What Spark says of a batch (`StreamingQueryProgress` as JSON), reduced to what somebody who watches wants."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pipeline.config.stages import DISPATCH

PREFIX = "delayline-"
"""Our queries are called by this and the name of their stage."""
WHOLE, CPU = "triggerExecution", "cpuTime"
"""Spark's name for the phase that is all of a batch."""


@dataclass(frozen=True)
class Progress:
    """One batch of one stage. What a stage does not have is None: dispatch has no clock, only the schedule has state.

    Attributes:
        stage: which.
        batch: its number.
        ended_ms: when it ended, ms UTC.
        rows: rows that it read from its table, each as often as Spark read it; the clock's are not counted.
        duration_ms: where its time went, by Spark's names; `triggerExecution` is all of it. Of settle, `cpuTime` is
            the processor time of its thread.
        instant_ms: the instant that it stands for, ms UTC.
        watermark_ms: the event time that it began with, ms UTC.
        version: the version of its source table up to which it has read, or is reading.
        state_rows: keys in the streaming state.
        state_bytes: memory of the state store, as Spark counts it.
        dropped: rows that came behind the watermark and are lost to the stage. Must be 0.
    """

    stage: str
    batch: int
    ended_ms: int
    rows: int
    duration_ms: Mapping[str, int]
    instant_ms: int | None
    watermark_ms: int | None = None
    version: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    dropped: int = 0

    @property
    def seconds(self) -> float:
        """How long the batch took."""
        return self.duration_ms.get(WHOLE, 0) / 1_000

    def dumps(self) -> str:
        """One line of JSON."""
        return json.dumps({"event": "progress"} | asdict(self))


def parse(progress: Mapping[str, Any]) -> Progress | None:
    """The progress of a query; None when it is not one of ours."""
    name = str(progress.get("name") or "")
    if not name.startswith(PREFIX):
        return None
    ends = [_end(source) for source in progress["sources"]]
    tables = [source for source, end in zip(progress["sources"], ends, strict=True) if "instant" not in end]
    duration = {key: int(value) for key, value in progress["durationMs"].items()}
    states, watermark = progress.get("stateOperators", ()), progress.get("eventTime", {}).get("watermark")
    return Progress(
        stage=name.removeprefix(PREFIX),
        batch=int(progress["batchId"]),
        ended_ms=_ms(progress["timestamp"]) + duration.get(WHOLE, 0),
        rows=sum(int(source["numInputRows"]) for source in tables),
        duration_ms=duration,
        # 0 before the first instant. Those of dispatch say when something that was held was taken last, and no more.
        instant_ms=None if name == PREFIX + DISPATCH else _greatest(end.get("instant") or None for end in ends),
        watermark_ms=None if watermark is None else _ms(watermark),
        version=_greatest(end.get("reservoirVersion") for end in ends),
        state_rows=_total(states, "numRowsTotal"),
        state_bytes=_total(states, "memoryUsedBytes"),
        dropped=_total(states, "numRowsDroppedByWatermark") or 0,
    )


def _end(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The end offset of a source; it has none before its first data."""
    end = source.get("endOffset")
    return end if isinstance(end, dict) else {}


def _greatest(values: Any) -> int | None:  # noqa: ANN401 - whatever JSON holds
    return max((int(value) for value in values if value is not None), default=None)


def _total(states: Sequence[Mapping[str, Any]], name: str) -> int | None:
    return sum(int(state[name]) for state in states) if states else None


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)

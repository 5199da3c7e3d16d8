"""Stages with one subscription to what recurs, what is done with them, and what it was sent."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import LONGEST_HORIZON_MS, Settings
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.subscriptions.schedules import OCCURRENCE
from schemas import DELIVERIES, SCHEDULES
from tests.support.stages import Stages


def begun(root: str, instant: int) -> Stages:
    """Stages that have worked at an instant (ms UTC), with a subscription to `reminders`."""
    made = Stages(root, Settings(horizon_ms=LONGEST_HORIZON_MS))
    subscribe(made.root, Subscription("reminders", "s", tick_ms=1))
    made.instant = instant
    made.work()
    return made


def came(stages: Stages) -> Counter[tuple[str, str]]:
    """What was delivered: the payload, and the occurrence from the day on."""
    rows = query("SELECT properties, payload FROM t", t=open_table(stages.root, DELIVERIES))
    return Counter((row["payload"].decode(), dict(row["properties"])[OCCURRENCE][8:16]) for row in rows)


def go(stages: Stages, span_ms: int) -> None:
    """Let time pass at once, and all stages work."""
    stages.instant += span_ms
    stages.work()


def set_by_writer(stages: Stages, *rows: dict[str, Any]) -> None:
    """Schedules for the same topic, by one commit."""
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, [{"topic": "reminders", **row} for row in rows]))

"""Stages with one subscription to what recurs, and what it was sent."""

from __future__ import annotations

from collections import Counter

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import LONGEST_HORIZON_MS, Settings
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.schedules import OCCURRENCE
from schemas import DELIVERIES
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

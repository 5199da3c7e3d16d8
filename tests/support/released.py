"""A small warehouse without a JVM: a few messages were released to one subscription, and its consumers may speak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, MESSAGES, Table
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
"""When the messages come, ms UTC; they are due at once."""
ACKNOWLEDGES = Policies(ack=True)


def release(folder: Path, *names: str, policies: Policies = ACKNOWLEDGES, visible: bool = True) -> Stages:
    """Stages of a warehouse whose subscription `s` of the topic `t` was released messages, by their payloads.

    Args:
        folder: the warehouse is made in there.
        *names: the payloads.
        policies: of the subscription.
        visible: dispatch has delivered them.
    """
    found = Stages(str(folder / "warehouse"))
    subscribe(found.root, Subscription("t", "s", tick_ms=1, policies=policies))
    found.instant = T0
    assert found.ingest()
    assert found.ingest(*(message(name, "t") for name in names))
    found.schedule.step(T0)
    if visible:
        assert found.dispatch()
    assert found.settle()
    return found


@contextmanager
def released(folder: Path, *names: str, policies: Policies = ACKNOWLEDGES, visible: bool = True) -> Iterator[Stages]:
    """The same, while there is no JVM."""
    yield release(folder, *names, policies=policies, visible=visible)


def rows(stages: Stages, table: Table) -> list[dict[str, Any]]:
    """What a table holds."""
    found: list[dict[str, Any]] = open_table(stages.root, table).to_pyarrow_table().to_pylist()
    return found


def event(stages: Stages, kind: str, entry: int, count: int = 0, **more: object) -> dict[str, Any]:
    """What a consumer says of a delivery, as a row."""
    ledger = min(row["ledger_id"] for row in rows(stages, MESSAGES) if row["topic"] == "t")
    place = {"ledger_id": ledger, "first_entry": entry, "last_entry": entry, "redelivery_count": count}
    return {"topic": "t", "subscription": "s", "life": 1, "kind": kind, "at": at(0), **place, **more}


def say(stages: Stages, kind: str, entry: int, count: int = 0, **more: object) -> None:
    """A consumer says it."""
    append(stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [event(stages, kind, entry, count, **more)]))

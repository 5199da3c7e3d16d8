"""Commands and windows without Spark: what is asked earlier comes no later, whose tick counts, what is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.client.commanding.commands import reschedule, shift, undo
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta import deltars
from schemas import MESSAGES, SEGMENTS, SUBSCRIPTIONS
from tests.support.client import at, message_row, noticed, put

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NIGHT = 46_300 * DAY
"""Midnight in UTC, far ahead."""
DUE = NIGHT + 8 * HOUR + 10 * MINUTE
COUNT = 40


def sent(root: str, due: int = DUE, **more: Any) -> None:  # noqa: ANN401 - columns
    """Messages that are due together, in two ledgers."""
    rows = [message_row(1 + entry % 2, entry // 2, due) for entry in range(COUNT)]
    put(root, MESSAGES, *({**row, "message_key": f"k{n}", **more} for n, row in enumerate(rows)))


@pytest.fixture
def topic(root: str) -> str:
    """A topic that ingest knows a subscription of, with a window by day."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    set_policy(root, "t", window="08:00-20:00", window_spread_ms=HOUR)
    return root


def test_what_is_to_come_earlier_comes_no_later_for_the_spread_of_the_opening(topic: str) -> None:
    """A shift to the night before, and a time at night: of each message the earlier time counts."""
    sent(topic)
    for found in (
        shift(topic, "t", span=timedelta(hours=-2), dry_run=True, where="true"),
        reschedule(topic, "t", to=at(NIGHT + HOUR), dry_run=True, where="true"),
    ):
        assert found.first_then is not None
        assert found.last_then is not None
        assert NIGHT + 8 * HOUR <= found.first_then < found.last_then < DUE
    later = shift(topic, "t", span=timedelta(hours=2), where="true")
    back = undo(topic, later.command_id or "")
    assert (later.first_then, later.last_then) == (DUE + 2 * HOUR, DUE + 2 * HOUR)
    assert (back.first_then, back.last_then) == (DUE, DUE)


def test_the_tick_counts_with_which_a_life_began(root: str) -> None:
    """The line of the registry has a finer one, which ingest does not follow; its bucket ends when it is closed."""
    subscribe(root, Subscription("t", "s", tick_ms=1))
    listener = [{"name": "s", "life": 1, "tick_ms": 10 * MINUTE}]
    marker = {"topic": "t", "count": 0, "kind": "marker", "batch_id": 0, "first_ledger": 0, "marker": 1}
    put(root, SEGMENTS, {**marker, "subscriptions": listener})
    set_policy(root, "t", window="08:00-20:00")
    sent(root)
    found = reschedule(root, "t", to=at(NIGHT + 20 * HOUR - SECOND), where="message_key = 'k3'")
    assert found.first_then == NIGHT + DAY + 8 * HOUR


@pytest.mark.parametrize("window", ["08:00-20:00", None])
def test_the_registry_is_opened_as_often_for_many_subscriptions_as_for_one(
    root: str, monkeypatch: pytest.MonkeyPatch, window: str | None
) -> None:
    """With a window and without."""
    opened, init = list[str](), DeltaTable.__init__

    def counted(self: DeltaTable, table: str, *args: Any, **named: Any) -> None:  # noqa: ANN401 - of delta-rs
        opened.append(str(table))
        init(self, table, *args, **named)

    monkeypatch.setattr(DeltaTable, "__init__", counted)
    sent(root)
    set_policy(root, "t", window=window)
    found = []
    for number in range(1, 4):
        subscribe(root, Subscription("t", f"s{number}"))
        noticed(root, f"s{number}", 0, number)
        opened.clear()
        moved = shift(root, "t", span=timedelta(hours=1), dry_run=True, where="true")
        assert moved.selection.count == number * COUNT
        found.append([sum(each.endswith(table.name) for each in opened) for table in (SUBSCRIPTIONS, SEGMENTS)])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("few", [1_000, 1])
def test_zones_are_read_of_the_messages_that_a_command_names(
    topic: str, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """And of none between them, whether positions are spelled out or are a table."""
    monkeypatch.setattr("pipeline.client.tables.relations._SPELLED_OUT", few)
    set_policy(topic, "t", window_zone="property:zone, Europe/Rome", window_spread_ms=0)
    sent(topic, properties=[("zone", "America/New_York"), ("other", "x")])
    put(topic, MESSAGES, {**message_row(1, COUNT, DUE), "message_key": "nowhere"})
    read = list[int]()

    def arrow_of(text: str, **tables: DeltaTable) -> pa.Table:
        found = deltars.arrow_of(text, **tables)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr("pipeline.client.commanding.openings.arrow_of", arrow_of)

    def moved(*keys: str) -> Sequence[int | None]:
        names = ", ".join(f"'{each}'" for each in keys)
        found = reschedule(topic, "t", to=at(NIGHT + DAY), dry_run=True, where=f"message_key IN ({names})")
        return found.first_then, found.last_then

    # It is summer time: 08:00 in New York is 12:00 in UTC, in Rome 06:00.
    assert moved("k0", f"k{COUNT - 1}") == (NIGHT + DAY + 12 * HOUR, NIGHT + DAY + 12 * HOUR)
    assert moved("k0", "nowhere", f"k{COUNT - 1}") == (NIGHT + DAY + 6 * HOUR, NIGHT + DAY + 12 * HOUR)
    assert read == [2, 3]

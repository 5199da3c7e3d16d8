"""What `delayline pending` prints, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from typer.testing import Result

from jobs.commands.pending import as_json, by_minute, by_topic, keys, keys_json, report
from pipeline.client.insight.pending import Backlog, KeyBacklog, Pending
from tests.support.client import new_warehouse
from tests.support.invoked import invoke


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def run(root: str, *words: str) -> Result:
    """Run the command in this process."""
    return invoke(["pending", "--warehouse", root, *words])


def test_pending_is_printed_with_bars_over_due_time() -> None:
    """A line a subscription, at most twelve bars over all of them, and what waits in the inbox."""
    minute = 60_000
    one = Backlog("t", "a", 3, 61_000, {minute: 2, 2 * minute: 1})
    two = Backlog("t", "b", 0, None, {})
    lines = list(report(Pending((one, two), 1_234, {}), 1_000))
    assert lines[0] == "t/a  3 pending, next due 1970-01-01T00:01:01.000Z (in 1m)"
    assert lines[1] == "t/b  nothing pending"
    assert lines[2:4] == ["  1970-01-01T00:01  " + "█" * 40 + " 2", "  1970-01-01T00:02  " + "█" * 20 + " 1"]
    assert lines[4:] == ["1,234 in the inbox, not yet taken by ingest"]
    assert "(1m ago)" in next(report(Pending((one,), 0, {}), 121_000))
    assert list(report(Pending((), 0, {}), 0)) == ["No active subscription."]


@pytest.mark.parametrize(("count", "step", "bars"), [(12, 1, 12), (13, 1, 3), (1_000, 1_440, 11), (40_000, 1_440, 11)])
def test_bars_widen_until_there_are_no_more_than_twelve(count: int, step: int, bars: int) -> None:
    """A minute or a century of due times fits on a screen, and nothing is left out."""
    minutes = {60_000 * step * number: 1 for number in range(count)}
    lines = list(report(Pending((Backlog("t", "s", count, 0, minutes),), 0, {}), 0))[1:]
    assert len(lines) == bars
    assert sum(int(text.rsplit(" ", 1)[1].replace(",", "")) for text in lines) == count


def test_pending_in_json_holds_every_minute() -> None:
    """A script draws its own bars, and can read the tables at the same versions."""
    found = json.loads(as_json(Pending((Backlog("t", "a", 3, 61_000, {60_000: 3}),), 2, {"messages": 7})))
    named = {"topic": "t", "subscription": "a", "held": 0, "paused": False, "closed_until": None, "held_for_ms": None}
    named |= {"fair_by": None}
    assert found["subscriptions"] == [
        {
            **named,
            "pending": 3,
            "next_due": "1970-01-01T00:01:01.000Z",
            "due_by_minute": [["1970-01-01T00:01:00.000Z", 3]],
        }
    ]
    assert (found["in_inbox"], found["versions"]) == (2, {"messages": 7})


def test_pending_is_printed_by_topic_and_by_minute_and_says_what_is_uncertain() -> None:
    """A line for each, over all subscriptions."""
    backlogs = (
        Backlog("a", "s", 3, 61_000, {60_000: 2, 180_000: 1}),
        Backlog("a", "other", 1, 60_500, {60_000: 1}),
        Backlog("b", "s", 0, None, {}),
    )
    found = Pending(backlogs, 0, {}, 5)
    last = "5 more that were cancelled since may have been there: their rows are deleted"
    assert list(by_topic(found, 60_000)) == [
        "a  4 pending, next due 1970-01-01T00:01:00.500Z (in 0s)",
        "b  nothing pending",
        last,
    ]
    assert list(by_minute(found, 0)) == ["1970-01-01T00:01  3", "1970-01-01T00:03  1", last]
    assert json.loads(as_json(found))["uncertain"] == 5


def test_pending_by_key_and_as_of_a_time_run_on_a_new_warehouse(root: str) -> None:
    """Nothing is there, and a time to come is refused."""
    assert run(root, "--group-by", "key", "--as-of", "2026-01-01").stdout == ""
    for by in ("topic", "minute"):
        assert run(root, "--group-by", by).stdout == ""
    assert run(root, "--as-of", "9000-01-01").exit_code == 2
    rows = [KeyBacklog("t", "s", None, 12_345), KeyBacklog("t", "s", "a\nb", 1)]
    assert list(keys(rows)) == ["      12,345  t/s  (no key)", "           1  t/s  a\\nb"]
    assert [json.loads(line)["key"] for line in keys_json(rows)] == [None, "a\nb"]

"""What a condition that names messages may be, whoever gives it: a command, a list, the page."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.commanding.commands import cancel
from pipeline.client.commanding.conditions import LONGEST
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from schemas import MESSAGES
from tests.support.client import message_row, noticed, put

NOON = 3_999_960_000_000
QUERIES = (
    "entry_id IN (SELECT entry_id FROM messages)",
    "(select count(*) from generate_series(1, 100)) > 0",
    "EXISTS (FROM messages)",
    "(FROM messages SELECT count(*)) > 0",
    "EXISTS (WITH x AS (SELECT 1) SELECT * FROM x)",
    "entry_id IN (VALUES (0))",
    "entry_id = ANY (SELECT 0)",
    "topic = 'a' AND topic = subscription AND entry_id IN (SELECT 0)",
    "subscription = 'nobody' AND EXISTS (SELECT 1 FROM messages)",
    "redelivery_count > 0 OR EXISTS (SELECT 1)",
    "true) UNION ALL SELECT 1, 1, 1 FROM messages WHERE (true",
)
WORDS = (
    "message_key = 'select with values (SELECT 1)'",
    "message_key <> 'a\nSubquery:\n  TableScan: x\n'",
    "message_key = 'it''s (select 1)' OR message_key = $$(values (1))$$",
    "entry_id IN (0, 1) -- with (SELECT 1)",
    "message_key IS NULL /* (SELECT 1) */",
)


@pytest.fixture
def waits(root: str) -> str:
    """A message that waits for a subscription."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    put(root, MESSAGES, message_row(1, 0, NOON))
    return root


@pytest.mark.parametrize("where", QUERIES)
def test_a_query_within_a_condition_is_refused(waits: str, where: str) -> None:
    """However it begins, and whatever stands beside it. A list of what waits and a command refuse the same."""
    for ask in (
        lambda: pending_rows(waits, where=where),
        lambda: cancel(waits, "t", where=where, dry_run=True),
    ):
        with pytest.raises(BadValue, match="condition"):
            ask()


@pytest.mark.parametrize("where", WORDS)
def test_the_words_of_a_query_may_stand_in_a_text(waits: str, where: str) -> None:
    """Or in a remark."""
    assert pending_rows(waits, where=where).num_rows in (0, 1)
    assert cancel(waits, "t", where=where, dry_run=True).selection.count in (0, 1)


def test_a_condition_is_as_long_as_the_planner_can_bear(waits: str) -> None:
    """What is longer is refused before anybody parses it, and the message says how long one may be."""
    term = "entry_id = 0"
    most = " OR ".join([term] * (LONGEST // len(f"{term} OR ")))
    assert pending_rows(waits, where=most).num_rows == 1
    for ask in (
        lambda: pending_rows(waits, where=most.ljust(LONGEST + 1)),
        lambda: cancel(waits, "t", where=most.ljust(LONGEST + 1)),
    ):
        with pytest.raises(BadValue, match=f"up to {LONGEST:,} characters"):
            ask()


def test_a_condition_is_refused_where_nothing_waits(root: str) -> None:
    """Nobody learns it from an empty list."""
    with pytest.raises(BadValue, match="nosuch"):
        pending_rows(root, where="nosuch = 1")

"""What is wrong with a condition is said of the condition, for commands and for guards."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.commanding.inforce import at_work
from pipeline.client.commanding.selecting import PendingLog
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.subscriptions.guards import Guard
from schemas import MESSAGES
from tests.support.client import message_row, new_warehouse, put

LONG = " AND ".join(["payload_bytes > 0"] * 5)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A new warehouse with a message: some mistakes are found when one is looked at."""
    made = new_warehouse(str(tmp_path_factory.mktemp("conditions") / "w"))
    subscribe(made, Subscription("t", "s"))
    put(made, MESSAGES, message_row(1, 0, 0, "t") | {"message_key": "abc"})
    return made


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("topic === 'a'", "expected an expression, found =, here: topic ==^= 'a')"),
        ("topic =", "expected an expression, here: topic =^)"),
        ("topic = 'a'\n  AND = 3", "expected an expression, found =, here: topic = 'a' AND ^= 3)"),
        (f"{LONG} + + {LONG} = = 3", "here: ...s > 0 AND payload_bytes > 0 = ^= 3)"),
        ("'unfinished", "Unterminated string literal, here: ^'unfinished)"),
        ("key = 'a'", "there is no column 'key'; did you mean 'message_key'?)"),
        ("duetime IS NULL", "there is no column 'duetime'; did you mean 'due_time'?)"),
        ("xyz IS NULL", "there is no column 'xyz')"),
        ("due_time < 'soon'", "times are written like '2026-11-25T10:00:00Z')"),
        ("message_key", "(it is a text, and no condition that is true or false)"),
        ("1", "(it is a number, and no condition that is true or false)"),
        ("topic rlike '('", "as in topic ~ '^a.*', here: topic ^rlike '(')"),
        ("sum(payload_bytes) > 1", "so there is no sum, no count and the like)"),
        ("message_key IN ('a','b'", "(a bracket is not closed, here: message_key IN ('a','b'^)"),
        ("message_key ~ '('", "(the pattern is no regular expression: unclosed group)"),
        ("due_time > 5", "(a time and a number do not go together; times are written like '2026-11-25T10:00:00Z')"),
        ("substr(topic) = 'a'", "is not valid Substring)"),
    ],
)
def test_a_mistake_is_shown_where_it_is(root: str, condition: str, said: str) -> None:
    """Lines and columns of a query that we made around it say nothing to who wrote it."""
    for call in (lambda: pending_rows(root, where=condition), Guard(condition).checked):
        with pytest.raises(BadValue) as refused:
            call()
        text = str(refused.value)
        assert text.endswith(said), text
        assert not any(inside in text for inside in ("Line:", "Span(", "Error(", "External", "Some("))
        assert "\n" not in text


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("deliver_at IS NULL", "there is no column 'deliver_at'; did you mean 'due_time'?)"),
        ("ledger_id / 0 = 1", "(it divides by zero, here: ledger_id ^/ 0 = 1)"),
        ("uppr(topic) = 'A'", "(there is no function 'uppr'; did you mean 'upper'?)"),
        ("CAST(message_key AS BIGINT) = 1", "as in message_key = '1')"),
    ],
)
def test_what_is_found_when_a_message_is_looked_at_is_told_in_words_too(root: str, condition: str, said: str) -> None:
    """The engine wraps it as an error of three libraries."""
    with pytest.raises(BadValue) as refused:
        PendingLog(root, condition).chosen("t", {}, at_work(root))
    text = str(refused.value)
    assert text.endswith(said), text
    assert not any(inside in text for inside in ("Error(", "External", "Some(", "Parquet"))

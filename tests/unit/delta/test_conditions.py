"""What is wrong with a condition is said of the condition, for commands and for guards."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.insight.pendingrows import pending_rows
from pipeline.config.errors import BadValue
from pipeline.subscriptions.guards import Guard
from tests.support.client import new_warehouse

LONG = " AND ".join(["payload_bytes > 0"] * 5)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A new warehouse: a condition is looked at without any message, too."""
    return new_warehouse(str(tmp_path_factory.mktemp("conditions") / "w"))


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
        ("message_key", "non-boolean predicate 'message_key' returning Utf8View)"),
    ],
)
def test_a_mistake_is_shown_where_it_is(root: str, condition: str, said: str) -> None:
    """Lines and columns of a query that we made around it say nothing to who wrote it."""
    for call in (lambda: pending_rows(root, where=condition), Guard(condition).checked):
        with pytest.raises(BadValue) as refused:
            call()
        text = str(refused.value)
        assert text.endswith(said), text
        assert "Line:" not in text
        assert "\n" not in text

"""What a condition that names messages may be: of bounded length, and about one message at a time.

Programs, the command and the page bring conditions of people. The planner of queries takes minutes for a very long one,
and a query within one could read all tables, or count for ever. What the parser makes of a condition says whether there
is one: words do not, for they may stand in a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.config.errors import BadValue, check_text
from pipeline.delta.conditions import why
from pipeline.delta.deltars import query, quoted

VIEW = (
    "topic", "subscription", "message_key", "properties", "due_time", "publish_time", "payload_bytes", "ledger_id",
    "entry_id", "redelivery_count",
)  # fmt: skip
"""The columns that a condition sees."""
LONGEST = 10_000
"""Characters of a condition."""
_MET = """
    SELECT ledger_id FROM (
        SELECT topic, upper(topic) AS subscription, message_key, properties, due_time, publish_time,
            ledger_id + entry_id AS payload_bytes, ledger_id, entry_id, ledger_id - entry_id AS redelivery_count
        FROM messages
    ) pending WHERE (\n{where}\n)
"""
"""What meets a condition. No column has a known value here, so a plan leaves out nothing that a message would need."""


def condition_of(key: str | None, where: str | None) -> str:
    """The condition that is met by messages with a key, or the one that somebody wrote; by all when there is neither.

    Raises:
        BadValue: it is too long, or no Unicode.
    """
    check_text("key", key)
    check_text("where", where)
    if where is not None and len(where) > LONGEST:
        raise BadValue("where", f"{where[:100]}...", f"a condition of up to {LONGEST:,} characters")
    return f"message_key = {quoted(key)}" if key is not None else "true" if where is None else where


def check_condition(where: str, messages: DeltaTable) -> None:
    """Look at a condition, over no message.

    Raises:
        BadValue: it cannot be followed; or it holds a query.
    """
    text = _MET.format(where=where)
    try:
        plan = query(f"EXPLAIN FORMAT PGJSON {text}", messages=messages)[0]
        is_whole = plan["plan_type"] == "logical_plan"
        if not is_whole:
            # No plan can be made of it; asked for rows the engine says why.
            query(f"{text} LIMIT 0", messages=messages)
    except (DeltaError, pa.ArrowException) as error:
        raise not_followed(error, text, where) from error
    if not is_whole or sum(map(_sources, json.loads(plan["plan"]))) > 1:
        raise BadValue("where", where, "a condition over one message, without a query in it")


def not_followed(error: Exception, text: str, where: str) -> BadValue:
    """The refusal of a condition, by what the engine said of the query around it."""
    said = why(error, text, where, VIEW, "pending")
    return BadValue("where", where, f"a condition (SQL) over {', '.join(VIEW)} ({said})")


def _sources(node: Mapping[str, Any]) -> int:
    """How many tables and the like a plan reads."""
    below = node.get("Plan", node).get("Plans", ())
    return sum(map(_sources, below)) or 1

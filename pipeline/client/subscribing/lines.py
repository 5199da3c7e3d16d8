"""Lines of the registry as rows of its table: replaced by one commit, with the history of their policies."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipeline.config.errors import check_kind, check_text
from pipeline.config.spelling import iso_text
from pipeline.delta.deltars import LOG_STAYS, fitted, query, quoted, retried, rows_of
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.lines import LINES, PARTITIONS, TOPIC, Registered
from schemas import SUBSCRIPTIONS

TOPIC_LINE, HISTORY = TOPIC, "history"
"""Types of lines that are not active, beside `PARTITIONS`: policies of a topic, and what policies were."""
_FILES = 64
"""So many files the registry has before they are merged: whoever reads it opens all of them."""
_REMEMBERED = 100
"""So many changes of the policies of a topic or a subscription are remembered."""
Change = tuple[str, list[dict[str, object]]]
"""A condition in SQL that names lines, and the rows that come in their place."""


def registered_in(registry: DeltaTable, whose: str = "TRUE") -> Registered:
    """What the registry says at a version, of all or of those that a condition names; by topic and subscription."""
    sql = f"SELECT * FROM ({LINES.format(rows='registry')}) WHERE {whose} ORDER BY topic, subscription"  # noqa: S608 - our own words, and quoted
    return Registered.of_rows(query(sql, registry=registry))


def with_history(registry: DeltaTable, name: Name, new: dict[str, object]) -> list[dict[str, object]]:
    """A line, and rows that say which policies held since when; one more when the line has others than held last.

    A row of history is a line that is not active, of the type `HISTORY`; its `start` is the time.
    """
    return grown_history(history(registry, name), new)


def grown_history(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, object]]:
    """A line, and the history of its policies, to which the line adds a row when it has others than held last."""
    held = rows[-1]["policies"] if rows else {}
    policies = new["policies"] or {}
    if policies != held:
        now = iso_text(datetime.now(UTC), "microseconds")
        rows.append({**new, "type": HISTORY, "start": now, "tick_ms": 1, "active": False, "policies": policies})
    return [new, *rows[-_REMEMBERED:]]


def history(registry: DeltaTable, name: Name) -> list[dict[str, Any]]:
    """The rows that say which policies held since when, the oldest first."""
    text = f"SELECT * FROM registry WHERE {named_in_sql(name)} AND type = '{HISTORY}' ORDER BY start"  # noqa: S608 - quoted
    return [{**row, "policies": dict(row["policies"] or ())} for row in query(text, registry=registry)]


def replace_lines(
    root: str,
    name: Name,
    decide: Callable[[DeltaTable], list[dict[str, object]] | None],
    pause: Callable[[float], None] = time.sleep,
    *,
    partitions: bool = False,
) -> bool:
    """Replace all lines of a topic and subscription by some rows, as `change` does, from the registry as it is.

    The line that counts the partitions of a topic is another one than that of its policies; `partitions` says which.
    """
    mine = f"{named_in_sql(name)} AND type {'=' if partitions else '<>'} '{PARTITIONS}'"

    def lines(registry: DeltaTable) -> Change | None:
        new = decide(registry)
        return None if new is None else (mine, new)

    return replace_chosen(root, lines, pause)


def replace_chosen(
    root: str, decide: Callable[[DeltaTable], Change | None], pause: Callable[[float], None] = time.sleep
) -> bool:
    """Replace those lines that a condition names by some rows, by one commit, in which nobody else has changed them.

    Args:
        root: the warehouse.
        decide: gives the condition in SQL, and the rows, from the registry as it is; None leaves it so.
        pause: waits so many seconds.

    Returns:
        Whether lines were replaced.

    Raises:
        NoWarehouse: the folder has no registry.
        StillConflicting: others changed the lines every time; nothing was written.
    """

    def write(registry: DeltaTable) -> bool:
        found = decide(registry)
        if found is not None:
            mine, new = found
            rows = fitted(registry, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, new))
            write_deltalake(registry, rows, mode="overwrite", predicate=mine, post_commithook_properties=LOG_STAYS)
            keep_small(registry)
        return found is not None

    return retried(root, SUBSCRIPTIONS, write, pause)


def keep_small(registry: DeltaTable) -> None:
    """Merge the files of the registry when they are many: each line that is registered alone is a file of its own.

    Another writer may be faster. Then the next one does it.
    """
    if len(registry.file_uris()) > _FILES:
        with suppress(CommitFailedError):
            how = CommitProperties(max_commit_retries=0)
            registry.optimize.compact(commit_properties=how, post_commithook_properties=LOG_STAYS)


def named_in_sql(name: Name, *, partitions: bool = False) -> str:
    """Says of lines in SQL that they are of a topic, or of one of its `partitions`, and of a subscription.

    Raises:
        BadValue: one of them is no text, or not Unicode.
    """
    for field, text in zip(("topic", "subscription"), name, strict=True):
        check_kind(field, text, str, "a name")
        check_text(field, text)
    of_topic = of_topic_in_sql(name[0]) if partitions else f"topic = {quoted(name[0])}"
    return f"{of_topic} AND subscription = {quoted(name[1])}"


def of_topic_in_sql(topic: str) -> str:
    """Says of rows in SQL that they are of a topic, or may be of one of its partitions."""
    return f"(topic = {quoted(topic)} OR starts_with(topic, {quoted(f'{topic}-partition-')}))"


def topic_row(topic: str, kind: str, policies: Mapping[str, str]) -> dict[str, object]:
    """What the registry keeps of a topic, as a row: it is not active and has no subscription."""
    line = {"topic": topic, "subscription": "", "type": kind, "start": "latest", "tick_ms": 1}
    return {**line, "active": False, "policies": policies}

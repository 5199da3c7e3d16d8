"""Cancelling messages that wait, and taking that back: rows of `commands`, one commit each (decision 0057)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict, Unpack
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pipeline.client.commanding.chosen import Chosen
from pipeline.client.commanding.inforce import in_force
from pipeline.client.commanding.outcomes import remaining
from pipeline.client.commanding.selecting import Selection, choose, selection
from pipeline.config.errors import BadValue, check_text
from pipeline.delta.deltars import append, open_table, quoted
from pipeline.subscriptions.commands import CANCEL, UNDO, rows_of
from schemas import COMMANDS


@dataclass(frozen=True)
class Command:
    """A command that was given, or would be.

    Attributes:
        command_id: its id; None: nothing was written, because it was a dry run, or because it names nothing.
        kind: `cancel` or `undo`.
        selection: the messages that it names.
    """

    command_id: str | None
    kind: str
    selection: Selection


class HowCancelled(TypedDict, total=False):
    """What a cancel names, and what is kept with it; either a key or a condition.

    Attributes:
        key: messages with this key.
        where: or a condition over the columns of the view, in DataFusion's SQL.
        by: who commands it.
        reason: why.
    """

    key: str | None
    where: str | None
    by: str | None
    reason: str | None


def cancel(
    root: str, topic: str, subscription: str | None = None, *, dry_run: bool = False, **how: Unpack[HowCancelled]
) -> Command:
    """Cancel messages that wait for their first delivery, or that failed and wait to come again, by one commit.

    What dispatch has taken already is delivered all the same: a few seconds before a message is due it is too late.
    `pipeline.client.commanding.outcomes` tells what became of a command.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: for this one only; None: for all subscriptions that the topic has now.
        dry_run: write nothing.
        **how: see `HowCancelled`. A condition is one over the columns `topic`, `subscription`, `message_key`,
            `properties`, `due_time`, `publish_time`, `payload_bytes`, `ledger_id`, `entry_id` and `redelivery_count`.

    Raises:
        NoWarehouse: the folder lacks a table; one that an earlier version made gets it at a start.
        SubscriptionNotFound: there is no such subscription, or none at all.
        BadValue: neither key nor condition, or both; the condition cannot be followed; a text is not Unicode; ingest
            does not know the subscription yet.
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    asked = _asked(how.get("key"), how.get("where"))
    by, reason = how.get("by"), how.get("reason")
    for name, text in (("topic", topic), ("subscription", subscription), ("by", by), ("reason", reason)):
        check_text(name, text)
    open_table(root, COMMANDS)
    chosen = choose(root, topic, subscription, asked, in_force(root))
    written = None if dry_run or not chosen else str(uuid4())
    if written is not None:
        _write(root, chosen, {"kind": CANCEL, "command_id": written, "asked": asked, "issued_by": by, "reason": reason})
    return Command(written, CANCEL, selection(root, chosen))


def undo(
    root: str, command_id: str, *, dry_run: bool = False, by: str | None = None, reason: str | None = None
) -> Command:
    """Take a cancel back, for those of its messages that dispatch has neither left out nor delivered.

    Each comes at its time, at once when that has passed. What is undone twice is undone once.

    Args:
        root: the warehouse.
        command_id: of the cancel.
        dry_run: write nothing.
        by: who commands it; kept with the command.
        reason: why; kept with the command.

    Raises:
        NoWarehouse: the folder lacks a table.
        CommandNotFound: there is no such cancel.
        BadValue: a text is not Unicode.
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    for name, text in (("command_id", command_id), ("by", by), ("reason", reason)):
        check_text(name, text)
    chosen = remaining(root, command_id)
    written = None if dry_run or not chosen else str(uuid4())
    if written is not None:
        told = {"kind": UNDO, "command_id": written, "undoes": command_id, "issued_by": by, "reason": reason}
        _write(root, chosen, told)
    return Command(written, UNDO, selection(root, chosen))


def _asked(key: str | None, where: str | None) -> str:
    """The condition.

    Raises:
        BadValue: there is none, or there are two.
    """
    if (key is None) == (where is None):
        raise BadValue("where", where, "a condition, or a key instead; `true` names all that is pending")
    check_text("key", key)
    check_text("where", where)
    return f"message_key = {quoted(key)}" if key is not None else where or ""


def _write(root: str, chosen: Sequence[Chosen], told: Mapping[str, object]) -> None:
    whole = {**told, "at": datetime.now(UTC)}
    append(root, COMMANDS, pa.concat_tables([_rows(each, whole) for each in chosen]))


def _rows(chosen: Chosen, told: Mapping[str, object]) -> pa.Table:
    """Rows of one subscription. Until when they count is said by ledger: the latest due time of what is named there."""
    rows = rows_of({chosen.of: chosen.positions}, told)
    heads = np.flatnonzero(np.diff(chosen.ledgers, prepend=-1))
    latest = np.maximum(np.maximum.reduceat(chosen.due, heads), chosen.until)
    ledgers = chosen.ledgers[heads]
    due = latest[np.searchsorted(ledgers, rows.column("ledger_id").to_numpy())] * 1_000
    column = rows.column_names.index("due_time")
    return rows.set_column(column, rows.schema.field(column), pa.array(due).cast(rows.schema.field(column).type))

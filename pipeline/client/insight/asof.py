"""What was pending at an instant, from what the tables say of times, and not from their old versions.

A message was accepted by then when it was sent by then. It was delivered by then when the publication of its delivery
was noted by then; a delivery whose publication nobody noted counts from its due time. Commands count from the time that
whoever gave them stated, or from when dispatch left a message out, as it does with what expired. What retention has
deleted from `messages` is still in `deliveries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable

from pipeline.client.commanding.inforce import Chosen, at_work, in_force, left_out, replaced
from pipeline.client.insight.published import ROW, published
from pipeline.config.errors import BadValue
from pipeline.config.spelling import iso_text
from pipeline.delta.deltars import instant, open_table, query
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import PUBLICATIONS
from state.withdrawals import Parts, Round, count, left, merged

BELOW = "(d.due_ms <= {settled_ms} AND d.ledger_id < {settled_ledger})"
"""Whether a row of deliveries is below the mark of retention."""
_FIRST = "SELECT MIN(arrow_cast(committed_at, 'Int64')) / 1000 AS ms FROM t"
_LATE = "SELECT DISTINCT batch_id FROM t WHERE committed_at > {then} AND first_due <= {then}"
"""Batches of which something that was due by then came later."""
_DUE_BY_THEN = f"""
    SELECT {ROW}, batch_id, due_time, released_at, message_key, publish_time, deliver_at
    FROM deliveries WHERE redelivery_count = 0 AND due_time <= {{then}} AND batch_id IN ({{batches}})
"""  # noqa: S608 - our own words


@dataclass(frozen=True)
class CountingRule:
    """What counts as accepted and as delivered, in SQL over rows `m` of `messages` and `d` of `deliveries`.

    Attributes:
        sent: whether a message counts as accepted.
        change: what a delivery takes off; one whose message may be deleted brings that, too.
        counts: whether a delivery is looked at.
        in_force: what commands withdraw, newer messages replaced, and dispatch left out for good.
        moved: what they give another due time.
        until: deliveries count that were due until this instant, ms UTC; None: all.
        late: rows of `deliveries` that were due and came later, so that they take nothing off; None: there are none.
        tables: what `late` reads, beside `deliveries`.
    """

    sent: str
    change: str
    counts: str
    in_force: Parts
    moved: Mapping[Round, Chosen] = field(default_factory=dict)
    until: int | None = None
    late: str | None = None
    tables: dict[str, DeltaTable] = field(default_factory=dict)


def at_present(root: str) -> CountingRule:
    """What counts now: a message that may be deleted is delivered, and left out on both sides."""
    said = at_work(root)
    return CountingRule("true", "-1", f"NOT {BELOW}", said.withdrawn, said.moved)


def at_instant(root: str, as_of: int) -> CountingRule:
    """What counted at an instant, ms UTC.

    Raises:
        BadValue: deliveries of that time are deleted.
        NoWarehouse: the folder lacks a table.
    """
    publications, micros, then = open_table(root, PUBLICATIONS), as_of * 1_000, instant(as_of)
    first = query(_FIRST, t=publications)[0]["ms"]
    if first is not None and first > as_of and read_mark(Files(), root) != SettledMark():
        raise BadValue("as_of", iso_text(as_of), f"{iso_text(first)} or later: deliveries of before may be deleted")
    batches = [row["batch_id"] for row in query(_LATE.format(then=then), t=publications)]
    late = None
    if batches:
        rows = _DUE_BY_THEN.format(then=then, batches=", ".join(map(str, batches)))
        late = f"SELECT * FROM ({published(rows, publications)}) WHERE committed_at > {then}"  # noqa: S608 - our own words
    sent = f"arrow_cast({{}}.publish_time, 'Int64') <= {micros}"
    brought = f"CASE WHEN {BELOW} AND {sent.format('d')} THEN 1 ELSE 0 END"
    change = f"({brought} - CASE WHEN d.bucket <= {micros} THEN 1 ELSE 0 END)"
    # A command states the time of a clock on the wall; in a replay only what dispatch did is of the right time.
    said, tables = in_force(root, f"at <= {then}"), {"publications": publications}
    before = replaced(root, f"replaced_at <= {then}"), left_out(root, f"rejected_at <= {then}")
    withdrawn = merged((said.withdrawn, *before))
    return CountingRule(sent.format("m"), change, "true", withdrawn, said.moved, as_of, late, tables)


def uncertain(root: str, lives: Mapping[Name, int], rule: CountingRule, as_of: int, settled: SettledMark) -> int:
    """How many messages were cancelled after an instant whose rows retention may have deleted since.

    Nobody can say any more whether they had been sent by then.

    Args:
        root: the warehouse.
        lives: the present life of each subscription that is counted.
        rule: what counts.
        as_of: the instant, ms UTC.
        settled: the mark of retention.
    """
    deleted = f"due_time <= {instant(settled.due_ms)} AND ledger_id < {settled.ledger}"
    found = left_out(root, f"{deleted} AND rejected_at > {instant(as_of)}")
    present = {of: each for of, each in found.items() if lives.get((of.topic, of.subscription)) == of.life}
    return count(left(present, rule.in_force))

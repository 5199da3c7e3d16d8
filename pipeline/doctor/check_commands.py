"""Check of commands: all of them can be followed, and what was left out was not delivered."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from pipeline.delta.deltars import arrow_of, query
from pipeline.doctor.finding import Finding, error, note
from pipeline.doctor.look import Look
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commands import READ, wrong
from schemas import CANCELLED, COMMANDS, DELIVERIES, REJECTED_DISPATCH

CHECK = "commands"
_READ = f"SELECT {', '.join(READ)} FROM t"  # noqa: S608 - our own words
_BOTH = f"""
    SELECT d.topic, d.subscription, COUNT(*) AS n, MIN(d.ledger_id) AS ledger
    FROM deliveries d JOIN (SELECT * FROM refused WHERE reason = '{CANCELLED}') r
    ON d.topic = r.topic AND d.subscription = r.subscription AND d.life = r.life AND d.ledger_id = r.ledger_id
    AND d.entry_id = r.entry_id AND d.redelivery_count = r.redelivery_count
    GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - our own words


def commanded(look: Look) -> Iterator[Finding]:
    """Rows that cannot be followed are told; a position is left out or delivered, never both."""
    schema = arrow_schema(COMMANDS.columns)
    rows = arrow_of(_READ, t=look.table(COMMANDS).delta).cast(pa.schema([schema.field(name) for name in READ]))
    reasons = Counter(reason for reason in wrong(rows).to_pylist() if reason is not None)
    if reasons:
        told = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        yield note(CHECK, "command_not_followed", COMMANDS.name, told)
    refused = look.table(REJECTED_DISPATCH)
    if not query(f"SELECT 1 FROM t WHERE reason = '{CANCELLED}' LIMIT 1", t=refused.delta):  # noqa: S608
        return
    for row in query(_BOTH, deliveries=look.table(DELIVERIES).delta, refused=refused.delta):
        text = f"{row['n']:,} positions were cancelled and delivered, the first of ledger {row['ledger']}"
        remedy = "stop the stages, keep the tables, and report it"
        yield error(CHECK, "delivered_and_left_out", f"{row['topic']}/{row['subscription']}", text, remedy)

"""Check of keys: what was replaced has a newer message in its place, and nothing else is left out as replaced."""

from collections.abc import Iterator

from pipeline.delta.deltars import query
from pipeline.doctor.look import Finding, Look, error
from pipeline.doctor.positions import above
from schemas import MESSAGES, REJECTED_DISPATCH, REPLACED, WAS_REPLACED

# Below the mark of retention the newer message may be deleted: it may have been due before the older one.
_NEWER = """
    SELECT MIN(by_ledger_id) AS first, MAX(by_ledger_id) AS last FROM replaced WHERE by_ledger_id >= {ledger}
"""
_LOST = """
    SELECT r.topic, COUNT(*) AS n, MIN(r.by_ledger_id) AS ledger
    FROM (SELECT * FROM replaced WHERE by_ledger_id >= {first}) r
    LEFT ANTI JOIN (SELECT ledger_id, entry_id FROM messages WHERE ledger_id BETWEEN {first} AND {last}) m
    ON r.by_ledger_id = m.ledger_id AND r.by_entry_id = m.entry_id
    GROUP BY 1 ORDER BY 1
"""
_UNSAID = f"""
    SELECT d.topic, d.subscription, COUNT(*) AS n, MIN(d.ledger_id) AS ledger
    FROM (SELECT * FROM refused WHERE reason = '{WAS_REPLACED}' AND {{above}}) d
    LEFT ANTI JOIN replaced r ON d.ledger_id = r.ledger_id AND d.entry_id = r.entry_id
    GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - our own words
_REMEDY = "stop the stages, keep the tables, and report it"


def replaced(look: Look) -> Iterator[Finding]:
    """Each message that was replaced has one in its place, and dispatch left out nothing else for this reason."""
    tables = {"replaced": look.table(REPLACED).delta}
    (newer,) = query(_NEWER.format(ledger=look.mark.ledger), **tables)
    is_any, messages = newer["first"] is not None, look.table(MESSAGES).delta
    for row in query(_LOST.format(**newer), messages=messages, **tables) if is_any else ():
        text = f"{row['n']:,} messages are replaced by others that are not there, the first of ledger {row['ledger']}"
        yield error("replaced_by_nothing", row["topic"], text, _REMEDY)
    unsaid = _UNSAID.format(above=above(look.mark, "due_time"))
    for row in query(unsaid, refused=look.table(REJECTED_DISPATCH).delta, **tables):
        text = f"{row['n']:,} positions were left out that nothing replaced, the first of ledger {row['ledger']}"
        yield error("left_out_without_newer", f"{row['topic']}/{row['subscription']}", text, _REMEDY)

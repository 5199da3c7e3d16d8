"""Check of commands: they can be followed, what they name is there, and what became of it agrees with them."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.commanding.inforce import of_round
from pipeline.client.commanding.inforce import rows as commands_of
from pipeline.config.settings import DAY_MS, HOUR_MS
from pipeline.delta.deltars import arrow_of, batches_of, query, quoted
from pipeline.doctor.look import Finding, Look, Opened, error, note, warning
from pipeline.doctor.positions import above, ms
from pipeline.storage.arrays import longs
from pipeline.subscriptions.commands import READ, UNDO, named_by, withdrawals, wrong
from schemas import CANCELLED, COMMANDS, DELIVERIES, MESSAGES, REJECTED_DISPATCH, SEGMENTS
from state.positionset import PositionSet
from state.withdrawals import Round, Withdrawals, merged
from state.withdrawals import left as left_of

LONG_BEFORE_MS = DAY_MS + HOUR_MS
"""What was cancelled so long before it was due is not too late: dispatch looks no more than a day ahead."""
_NEXT = "SELECT MAX(next_ledger) AS ledger FROM t WHERE kind = 'marker'"
_BOTH = f"""
    SELECT d.topic, d.subscription, COUNT(*) AS n, MIN(d.ledger_id) AS ledger
    FROM deliveries d JOIN (SELECT * FROM refused WHERE reason = '{CANCELLED}') r
    ON d.topic = r.topic AND d.subscription = r.subscription AND d.life = r.life AND d.ledger_id = r.ledger_id
    AND d.entry_id = r.entry_id AND d.redelivery_count = r.redelivery_count
    GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - our own words
_ROUNDS = "SELECT DISTINCT topic, subscription, life, redelivery_count FROM t WHERE {where} AND life IS NOT NULL"
_REMEDY = "stop the stages, keep the tables, and report it"
_NOTHING = PositionSet()


def commanded(look: Look) -> Iterator[Finding]:
    """Commands name messages that are there, and each of those was left out or delivered, as they say, never both."""
    rows = commands_of(look.root, (*READ, "at"))
    said = withdrawals(rows.select(READ))
    if rows.num_rows:
        yield from _followed(rows)
        yield from _undoing(said)
        yield from _naming(look, said, rows)
        yield from _ignored(look, said, rows)
    yield from _left_out(look, said)


def _followed(rows: pa.Table) -> Iterator[Finding]:
    """Somebody wrote such rows by hand, and wonders why nothing happened."""
    reasons = Counter(reason for reason in wrong(rows).to_pylist() if reason is not None)
    if reasons:
        text = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        yield note("command_not_followed", COMMANDS.name, text)


def _undoing(said: Withdrawals) -> Iterator[Finding]:
    """An undo counts also when its cancel comes later: then that is taken back before it counts."""
    missing = sorted(said.undone.keys() - said.cancelled.keys())
    if missing:
        text = f"{len(missing):,} commands are taken back that are not there, the first is {missing[0]}"
        yield note("undo_of_nothing", COMMANDS.name, text)


def _naming(look: Look, said: Withdrawals, rows: pa.Table) -> Iterator[Finding]:
    """What is named was in the log when it was named; a row by hand may name anything."""
    (row,) = query(_NEXT, t=look.table(SEGMENTS).delta)
    following = row["ledger"] or 0
    topics: dict[str, list[PositionSet]] = defaultdict(list)
    standing: dict[str, list[PositionSet]] = defaultdict(list)
    undos = set(rows.filter(pc.equal(rows.column("kind"), UNDO)).column("command_id").to_pylist())
    for command, parts in named_by(rows).items():
        for of, positions in parts.items():
            topics[of.topic].append(positions)
        for of, positions in left_of(parts, said.undone.get(command, {})).items() if command not in undos else ():
            standing[of.topic].append(positions)
    for topic, sets in sorted(topics.items()):
        named = dict(PositionSet.union(sets).by_ledger())
        stands = dict(PositionSet.union(standing[topic]).by_ledger())
        coming = PositionSet({ledger: entries for ledger, entries in stands.items() if ledger >= following})
        if len(coming):
            text = f"{len(coming):,} positions are named that ingest has not given yet; what comes there is withdrawn"
            remedy = "append rows of the kind undo that name the same, as docs/tables.md says"
            yield warning("command_of_what_comes", topic, text, remedy)
        lost = PositionSet({ledger: entries for ledger, entries in named.items() if ledger < following})
        for table in (MESSAGES, DELIVERIES, REJECTED_DISPATCH):
            lost = _not_in(look.table(table), topic, lost)
        if len(lost):
            text = f"{len(lost):,} positions are named that no table has, or has any more"
            yield note("command_of_nothing", topic, text)


def _not_in(opened: Opened, topic: str, wanted: PositionSet) -> PositionSet:
    """The positions of a topic that a table does not have; it is read until all are found."""
    left = dict(wanted.by_ledger())
    if not left:
        return wanted
    where = f"topic = {quoted(topic)} AND ledger_id BETWEEN {min(left)} AND {max(left)}"
    for batch in batches_of(f"SELECT ledger_id, entry_id FROM t WHERE {where}", t=opened.delta):  # noqa: S608 - quoted
        for ledger, entries in PositionSet.at(longs(batch, "ledger_id"), longs(batch, "entry_id")).by_ledger():
            rest = left.pop(ledger, entries) - entries
            if rest:
                left[ledger] = rest
        if not left:
            break
    return PositionSet(left)


def _ignored(look: Look, said: Withdrawals, rows: pa.Table) -> Iterator[Finding]:
    """What was cancelled, and stays so, is not delivered, unless it was cancelled shortly before it was due.

    Commands state the time of a clock on the wall, which says nothing where the stages have another one.
    """
    if look.virtual:
        return
    given = dict(zip(*(rows.column(name).to_pylist() for name in ("command_id", "at")), strict=True))
    found: dict[Round, list[tuple[int, PositionSet]]] = defaultdict(list)
    for command, parts in said.cancelled.items():
        at = given.get(command)
        for of, positions in left_of(parts, said.undone.get(command, {})).items():
            if at is not None:
                found[of].append((int(at.timestamp() * 1_000) + LONG_BEFORE_MS, positions))
    for of, cancels in sorted(found.items(), key=lambda each: each[0]):
        where = f"{of_round(of)} AND {ms('due_time')} >= {min(since for since, _ in cancels)}"
        text = f"SELECT ledger_id, entry_id, {ms('due_time')} AS due_ms FROM t WHERE {where}"  # noqa: S608 - quoted
        came = arrow_of(text, t=look.table(DELIVERIES).delta)
        due, ledgers, entries = (longs(came, name) for name in ("due_ms", "ledger_id", "entry_id"))
        late = PositionSet.union(
            PositionSet.at(ledgers[due >= since], entries[due >= since]) & positions for since, positions in cancels
        )
        if len(late):
            text = f"{len(late):,} positions were delivered that had been cancelled more than a day before"
            yield error("cancelled_and_delivered", f"{of.topic}/{of.subscription}", text, _REMEDY)


def _left_out(look: Look, said: Withdrawals) -> Iterator[Finding]:
    """What dispatch left out was cancelled, and not delivered; commands below the mark may be gone."""
    refused, cancelled = look.table(REJECTED_DISPATCH), f"reason = '{CANCELLED}'"
    if not query(f"SELECT 1 FROM t WHERE {cancelled} LIMIT 1", t=refused.delta):  # noqa: S608
        return
    for row in query(_BOTH, deliveries=look.table(DELIVERIES).delta, refused=refused.delta):
        text = f"{row['n']:,} positions were cancelled and delivered, the first of ledger {row['ledger']}"
        yield error("delivered_and_left_out", f"{row['topic']}/{row['subscription']}", text, _REMEDY)
    where = f"{cancelled} AND {above(look.mark, 'due_time')}"
    named = merged(said.cancelled.values())
    for row in query(_ROUNDS.format(where=where), t=refused.delta):
        of = Round(**row)
        text = f"SELECT ledger_id, entry_id FROM t WHERE {of_round(of)} AND {where}"  # noqa: S608 - quoted
        found = arrow_of(text, t=refused.delta)
        nobody = PositionSet.at(longs(found, "ledger_id"), longs(found, "entry_id")) - named.get(of, _NOTHING)
        if len(nobody):
            text = f"{len(nobody):,} positions were left out that no command names"
            yield error("left_out_without_command", f"{of.topic}/{of.subscription}", text, _REMEDY)

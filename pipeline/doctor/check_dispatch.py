"""Check of dispatch: what was released has been handed over once, and nothing else has, and nothing early."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.client.subscribing.subscriptions import active
from pipeline.config.stages import DISPATCH, INGEST
from pipeline.delta.deltars import arrow_of, path_of, query
from pipeline.delta.logs.logfiles import takes_out
from pipeline.doctor import positions
from pipeline.doctor.check_prepared import waiting
from pipeline.doctor.finding import Finding, error
from pipeline.doctor.logs import Place
from pipeline.doctor.look import Look, Opened
from pipeline.doctor.positions import KEYS, above
from pipeline.subscriptions.incarnations import Incarnation, Name
from schemas import (
    DELIVERIES,
    HELD,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    RESCHEDULED,
    SEGMENTS,
    SUBSCRIPTIONS,
)

_SOURCE = ("topic", "subscription", "life", "ledger_id")
_FIRST = f"redelivery_count = 0 AND cause <> '{RESCHEDULED}'"
"""What a command moved may come before the time that its producer asked for, and then again."""
_EARLY = (
    (DELIVERIES, f"SELECT COUNT(*) AS n FROM t WHERE released_at < due_time OR deliver_at > due_time AND {_FIRST}"),  # noqa: S608
    (PUBLICATIONS, "SELECT COUNT(*) AS n FROM t WHERE committed_at < last_due"),
)


@dataclass(frozen=True)
class Handed:
    """What dispatch has not read yet, and what it has written and not shown; `gone` are rows of files that are gone."""

    unread: pa.Table
    hidden: pa.Table
    gone: int


def delivered(look: Look) -> Iterator[Finding]:
    """Every released position is delivered, prepared, held, refused, or unread by dispatch; once, and not early."""
    yield from _early(look)
    present = _present(look)
    handed = _handed(look) if present else None
    if handed is None:
        return
    listeners = positions.listening(present)
    released = positions.counted(look.table(REDELIVERY), above(look.mark, "message_due"), runs=True)
    shown = positions.counted(look.table(DELIVERIES), above(look.mark, "due_time"), runs=False)
    held = positions.counted(look.table(HELD), "true", runs=True)
    sides = [
        positions.only(each, listeners, KEYS[:3])
        for each in (released, positions.summed(handed.unread), shown, positions.summed(handed.hidden), held)
    ]
    differing = positions.differing(sides[:1], sides[1:])
    found = [_compared(look, handed, listeners, keys) for keys in positions.portions(differing)]
    if found:
        yield from _findings(look, pa.concat_tables(found), handed.gone)


def _early(look: Look) -> Iterator[Finding]:
    """A delivery is not before its time by its own columns, and not shown before it by those of its publication."""
    for table, sql in _EARLY:
        count = query(sql, t=look.table(table).delta)[0]["n"]
        if count:
            remedy = "check the clocks of the machines that ran the stages"
            yield error("early", table.name, f"{count:,} rows are before their time", remedy)


def _present(look: Look) -> dict[Name, Incarnation]:
    """The lives of those who are registered, and were so at each version of the registry that ingest has not seen yet.

    Dispatch looks at the registry itself: it drops what was released to who is gone, before ingest has noticed.
    """
    noted, registry = look.table(SEGMENTS).log.last_note(INGEST), look.table(SUBSCRIPTIONS)
    seen = -1 if noted is None else int(noted.note["registry"])
    present = _active(registry.delta)
    later = registry.log.read(seen + 1, registry.log.newest - 1)
    for version in (each for each, actions in later.items() if takes_out(actions)):
        present &= _active(DeltaTable(path_of(look.root, SUBSCRIPTIONS), version=version))
    return {name: life for name, life in look.lives.items() if name in present}


def _active(registry: DeltaTable) -> set[Name]:
    return {each.named for each in active(registry)}


def _handed(look: Look) -> Handed | None:
    """None when nobody can tell: the log does not reach back to dispatch, or files that it has to read are gone."""
    redelivery, deliveries = look.table(REDELIVERY), look.table(DELIVERIES)
    rest = redelivery.log.after(_place(look))
    if rest is None:
        return None
    runs = [_rows(redelivery, file["path"], ("first_entry", "last_entry", "message_due")) for _, file in rest]
    files = [file for _, part in waiting(look) for file in part.files]
    rows = [(file, _rows(deliveries, file.path, ("entry_id", "due_time"))) for file in files]
    if any(each is None for each in runs):
        return None
    unread = _above(look, [each for each in runs if each is not None], "message_due")
    hidden = _above(look, [each for _, each in rows if each is not None], "due_time")
    gone = sum(file.rows for file, each in rows if each is None)
    return Handed(positions.of_runs(unread), positions.entries(hidden), gone)


def _place(look: Look) -> Place:
    """Up to where dispatch has read `redelivery`, for good."""
    stage = look.stages[DISPATCH]
    place = stage.place(stage.committed) if stage.begun else None
    if place is not None:
        return place
    last = [look.table(table).log.last_note(DISPATCH) for table in (DELIVERIES, HELD)]
    sources = [each.source for each in look.shelf] + [tuple(each.note["source"]) for each in last if each]
    return max(sources, default=(0, -1))


def _rows(opened: Opened, path: str, columns: Sequence[str]) -> pa.Table | None:
    """Rows of a file, but for redeliveries; None when it is not there."""
    try:
        rows = opened.rows(path, [*_SOURCE, "redelivery_count", *columns])
    except FileNotFoundError:
        return None
    return rows.filter(pc.equal(rows["redelivery_count"], 0))


def _above(look: Look, rows: Sequence[pa.Table], due: str) -> pa.Table:
    """What is above the mark of retention."""
    if not rows:
        columns = {name: pa.array([], pa.string()) for name in _SOURCE[:2]}
        numbers = (*_SOURCE[2:], "entry_id", "first_entry", "last_entry")
        return pa.table(columns | {name: pa.array([], pa.int64()) for name in numbers})
    whole = pa.concat_tables(rows)
    return whole.filter(pc.invert(look.mark.below(whole, due)))


def _compared(look: Look, handed: Handed, listeners: pa.Table, keys: pa.Table) -> pa.Table:
    """Position by position: how often it was released, is not read yet, is delivered, waits, is held, was refused."""
    ledgers = positions.within(keys)
    runs, rows = (f"{above(look.mark, due)} AND {ledgers}" for due in ("message_due", "due_time"))
    of, later = f"redelivery_count = 0 AND {ledgers}", f"reason = '{RESCHEDULED}'"
    refused, put_off = (
        positions.typed(
            arrow_of(
                f"SELECT topic, subscription, ledger_id, entry_id FROM t WHERE {of} AND {why}",  # noqa: S608
                t=look.table(REJECTED_DISPATCH).delta,
            )
        )
        for why in (f"NOT {later}", f"{later} AND {above(look.mark, 'due_time')}")
    )
    sides = {
        "released": positions.taken_apart(look.table(REDELIVERY), runs, runs=True),
        "unread": handed.unread,
        "shown": positions.taken_apart(look.table(DELIVERIES), rows, runs=False),
        "hidden": handed.hidden,
        "held": positions.taken_apart(look.table(HELD), ledgers, runs=True),
        "refused": refused.join(listeners, ["topic", "subscription"], join_type="inner"),
        "later": put_off.join(listeners, ["topic", "subscription"], join_type="inner"),
    }
    return positions.side_by_side({side: positions.only(each, keys) for side, each in sides.items()})


def _findings(look: Look, found: pa.Table, gone: int) -> Iterator[Finding]:
    handed = pc.add(found["shown"], found["hidden"])
    none = pc.equal(pc.add(pc.add(handed, found["refused"]), found["held"]), 0)
    # A command gave it another due time: it is released once more for that.
    own = pc.subtract(found["released"], found["later"])
    lost = found.filter(pc.and_(pc.greater(own, found["unread"]), none))
    # What was in prepared files that are gone is a finding of its own, with its own remedy.
    for subject, text in positions.told(lost) if lost.num_rows > gone else ():
        lost_text = f"{text} released, and dispatch has read them and not handed them over"
        yield error("not_delivered", subject, lost_text, look.rebuild(DISPATCH))
    twice = found.filter(pc.and_(pc.greater(handed, own), pc.greater(found["released"], 0)))
    for subject, text in positions.told(twice):
        remedy = "restore `deliveries` from before, or tell the consumers: rows are never taken back"
        yield error("delivered_twice", subject, f"{text} in `deliveries` more than once", remedy)
    unknown = found.filter(pc.and_(pc.greater(handed, 0), pc.equal(found["released"], 0)))
    for subject, text in positions.told(unknown):
        remedy = "restore `redelivery` from the same copy as `deliveries`; a rebuild would deliver them once more"
        yield error("not_released", subject, f"{text} delivered and not in `redelivery`", remedy)

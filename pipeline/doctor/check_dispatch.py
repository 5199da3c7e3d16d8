"""Checks of dispatch: what was released has been handed over once, and nothing else has, and nothing early.

Each part that is prepared and not visible yet has its files, and none is missing in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

import schemas
from pipeline.client.subscribing.subscriptions import active
from pipeline.config.stages import DISPATCH, INGEST
from pipeline.delta.deltars import path_of, query
from pipeline.delta.logs.entries import takes_out
from pipeline.dispatch.prepared import Part, Prepared, Visible
from pipeline.doctor import positions
from pipeline.doctor.check_tables import has_columns
from pipeline.doctor.look import Finding, Look, Opened, Place, error
from pipeline.doctor.positions import AGAIN, CLOSED_KEYS, KEYS, Keys, above
from pipeline.subscriptions.incarnations import Incarnation, Name
from schemas import DELIVERIES


def prepared(look: Look) -> Iterator[Finding]:
    """Parts on the shelf can be made visible."""
    deliveries, visible = look.table(DELIVERIES), visible_in(look)
    if look.torn:
        text = f"the note {look.torn[0]} of prepared deliveries cannot be read"
        remedy = f"stop dispatch, delete the note, then {look.rebuild(DISPATCH)}"
        yield error("note_torn", DISPATCH, text, remedy)
    parts = [part for _, part in waiting(look)]
    paths = [file.path for part in parts for file in part.files]
    gone = deliveries.gone(paths)
    if gone:
        text = f"{len(gone)} of {len(paths)} files of prepared deliveries are gone (a VACUUM?): {gone[0]}"
        yield error("prepared_gone", DISPATCH, text, "start dispatch again: it prepares them anew")
    lost = visible.lost([part.number for part in parts])
    # What was prepared anew has numbers of its own, and nobody has those that it replaces.
    if lost and not any(each.replaces for each in look.shelf):
        text = f"parts {', '.join(map(str, sorted(lost)[:3]))} of prepared deliveries are neither visible nor noted"
        yield error("prepared_lost", DISPATCH, text, look.rebuild(DISPATCH))


def visible_in(look: Look) -> Visible:
    """Which parts are visible, by the last note of dispatch in `deliveries`."""
    shown = look.table(DELIVERIES).log.last_note(DISPATCH)
    return Visible() if shown is None else Visible.of(shown.note)


def waiting(look: Look) -> list[tuple[Prepared, Part]]:
    """The parts that are not visible."""
    return visible_in(look).hidden(look.shelf)


_SOURCE = ("topic", "subscription", "life", "ledger_id")
_FIRST = f"redelivery_count = 0 AND cause <> '{schemas.RESCHEDULED}'"
"""What a command moved may come before the time that its producer asked for, and then again."""
_DUE = {KEYS: "message_due", AGAIN: "due_time"}
"""By which time of a release retention tells whether its delivery may be gone."""
_EARLY = (
    (schemas.DELIVERIES, f"released_at < due_time OR deliver_at > due_time AND {_FIRST}"),
    (schemas.PUBLICATIONS, "committed_at < last_due"),
)
"""Which rows of a table are before their time."""


@dataclass(frozen=True)
class Handed:
    """Rows that dispatch has not read yet, and those that it has written and not shown, above the mark of retention.

    Attributes:
        unread: of `redelivery`.
        hidden: of `deliveries`.
        gone: how many rows files had that are gone.
    """

    unread: Sequence[pa.Table]
    hidden: Sequence[pa.Table]
    gone: int

    def of(self, look: Look, keys: Keys) -> tuple[pa.Table, pa.Table]:
        """The positions of both that are counted by some keys."""
        unread, hidden = (
            _above(look, [positions.kept(each, keys) for each in rows], due, keys)
            for rows, due in ((self.unread, _DUE[keys]), (self.hidden, "due_time"))
        )
        return positions.of_runs(unread, keys), positions.entries(hidden, keys)


def delivered(look: Look) -> Iterator[Finding]:
    """Every released position is delivered, prepared, held, refused, or unread by dispatch; once, and not early."""
    yield from _early(look)
    present = _present(look)
    handed = _handed(look) if present and not _halfway(look) else None
    if handed is None:
        return
    listeners = positions.listening(present)
    for keys in (KEYS, AGAIN):
        found = list(_differing(look, handed, listeners, keys))
        if found:
            yield from _findings(look, pa.concat_tables(found), handed.gone)


def handed_over(look: Look, keys: pa.Table) -> pa.Table:
    """The first deliveries of some ledgers that are visible, prepared or held, each by itself."""
    ledgers, handed = positions.within(keys), _handed(look)
    shown = f"{above(look.mark, 'due_time')} AND {ledgers}"
    found = [
        positions.taken_apart(look.table(schemas.DELIVERIES), shown, runs=False),
        positions.taken_apart(look.table(schemas.HELD), ledgers, runs=True),
        *([] if handed is None else handed.of(look, KEYS)[1:]),
    ]
    return positions.only(pa.concat_tables(found), keys)


def _differing(look: Look, handed: Handed, listeners: pa.Table, keys: Keys) -> Iterator[pa.Table]:
    """The positions of ledgers in which not all is in its place: of first deliveries, or of those `AGAIN`."""
    released = positions.counted(look.table(schemas.REDELIVERY), above(look.mark, _DUE[keys]), runs=True, keys=keys)
    shown = positions.counted(look.table(schemas.DELIVERIES), above(look.mark, "due_time"), runs=False, keys=keys)
    held = positions.counted(look.table(schemas.HELD), "true", runs=True, keys=keys)
    unread, hidden = handed.of(look, keys)
    sides = [
        positions.only(each, listeners, KEYS[:3])
        for each in (released, positions.summed(unread, keys), shown, positions.summed(hidden, keys), held)
    ]
    for portion in positions.portions(positions.differing(sides[:1], sides[1:], keys)):
        whole = positions.only(portion, listeners, KEYS[:3])
        yield _compared(look, (unread, hidden), listeners, whole, keys)


def _halfway(look: Look) -> bool:
    """Whether the last batch of dispatch has yet to do what it noted to `held`; the next start does that first."""
    changes = [each for each in look.shelf if each.held is not None]
    if not changes:
        return False
    wanted, last = changes[-1].held, look.table(schemas.HELD).log.last(DISPATCH)
    return wanted is not None and (last is None or last[0] <= wanted.version)


def _early(look: Look) -> Iterator[Finding]:
    """A delivery is not before its time by its own columns, and not shown before it by those of its publication."""
    for table, early in _EARLY:
        (row,) = query(f"SELECT COUNT(*) AS n FROM t WHERE {early}", t=look.table(table).delta)  # noqa: S608 - our own words
        count = row["n"]
        if count:
            remedy = "check the clocks of the machines that ran the stages"
            yield error("early", table.name, f"{count:,} rows are before their time", remedy)


def _present(look: Look) -> dict[Name, Incarnation]:
    """The lives of those who are registered, and were so at each version of the registry that ingest has not seen yet.

    Dispatch looks at the registry itself: it drops what was released to who is gone, before ingest has noticed.
    """
    noted, registry = look.table(schemas.SEGMENTS).log.last_note(INGEST), look.table(schemas.SUBSCRIPTIONS)
    seen = -1 if noted is None else int(noted.note["registry"])
    present = {each.named for each in look.registry.subscriptions}
    later = registry.log.read(seen + 1, registry.log.newest - 1)
    for version in (each for each, actions in later.items() if takes_out(actions)):
        then = DeltaTable(path_of(look.root, schemas.SUBSCRIPTIONS), version=version)
        # Nobody could read one that had other columns.
        present &= _active(then) if has_columns(schemas.SUBSCRIPTIONS, then.schema().to_json()) else present
    return {name: life for name, life in look.lives.items() if name in present}


def _active(registry: DeltaTable) -> set[Name]:
    return {each.named for each in active(registry)}


def _handed(look: Look) -> Handed | None:
    """None when nobody can tell: the log does not reach back to dispatch, or files that it has to read are gone."""
    redelivery, deliveries = look.table(schemas.REDELIVERY), look.table(schemas.DELIVERIES)
    rest = redelivery.log.after(_place(look))
    if rest is None:
        return None
    runs = [_rows(redelivery, file["path"], ("first_entry", "last_entry", "message_due")) for _, file in rest]
    files = [file for _, part in waiting(look) for file in part.files]
    rows = [(file, _rows(deliveries, file.path, ("entry_id",))) for file in files]
    if any(each is None for each in runs):
        return None
    gone = sum(file.rows for file, each in rows if each is None)
    return Handed([each for each in runs if each is not None], [each for _, each in rows if each is not None], gone)


def _place(look: Look) -> Place:
    """Up to where dispatch has read `redelivery`, for good."""
    stage = look.stages[DISPATCH]
    place = stage.place(stage.committed) if stage.begun else None
    if place is not None:
        return place
    last = [look.table(table).log.last_note(DISPATCH) for table in (schemas.DELIVERIES, schemas.HELD)]
    sources = [each.source for each in look.shelf] + [tuple(each.note["source"]) for each in last if each]
    return max(sources, default=(0, -1))


def _rows(opened: Opened, path: str, columns: Sequence[str]) -> pa.Table | None:
    """Rows of a file; None when it is not there."""
    try:
        return opened.rows(path, [*_SOURCE, "redelivery_count", "round", "due_time", *columns])
    except FileNotFoundError:
        return None


def _above(look: Look, rows: Sequence[pa.Table], due: str, keys: Keys) -> pa.Table:
    """What is above the mark of retention."""
    if not rows:
        columns = {name: pa.array([], pa.string()) for name in _SOURCE[:2]}
        numbers = (*keys[2:], "entry_id", "first_entry", "last_entry")
        return pa.table(columns | {name: pa.array([], pa.int64()) for name in numbers})
    whole = pa.concat_tables(rows)
    return whole.filter(pc.invert(look.mark.below(whole, due)))


def _compared(
    look: Look, handed: tuple[pa.Table, pa.Table], listeners: pa.Table, wanted: pa.Table, keys: Keys
) -> pa.Table:
    """Position by position: how often it was released, is not read yet, is delivered, waits, is held, was refused."""
    ledgers = positions.within(wanted)
    runs, rows = (f"{above(look.mark, due)} AND {ledgers}" for due in (_DUE[keys], "due_time"))
    later = f"reason = '{schemas.RESCHEDULED}'"
    # The round says of what comes again which release was put off.
    put_off = "false" if keys == AGAIN else f"{later} AND {above(look.mark, 'due_time')}"
    refused, later_on = (
        positions.refused(look.table(schemas.REJECTED_DISPATCH), f"{ledgers} AND {why}", keys)
        for why in ("true" if keys == AGAIN else f"NOT {later}", put_off)
    )
    sides = {
        "released": positions.taken_apart(look.table(schemas.REDELIVERY), runs, runs=True, keys=keys),
        "unread": handed[0],
        "shown": positions.taken_apart(look.table(schemas.DELIVERIES), rows, runs=False, keys=keys),
        "hidden": handed[1],
        "held": positions.taken_apart(look.table(schemas.HELD), ledgers, runs=True, keys=keys),
        "refused": refused.join(listeners, ["topic", "subscription"], join_type="inner"),
        "later": later_on.join(listeners, ["topic", "subscription"], join_type="inner"),
    }
    found = positions.side_by_side({side: positions.only(each, wanted, keys) for side, each in sides.items()}, keys)
    if keys == KEYS:
        return found
    # It waited though it was settled: dispatch leaves it out.
    settled = positions.taken_apart(look.table(schemas.CLOSED), ledgers, runs=True, keys=CLOSED_KEYS)
    names = [*CLOSED_KEYS, "entry_id"]
    open_still = pc.or_(pc.greater(pc.add(found["shown"], found["hidden"]), 0), pc.greater(found["held"], 0))
    return pa.concat_tables(
        [found.filter(open_still), found.filter(pc.invert(open_still)).join(settled, names, join_type="left anti")]
    )


def _comes_again(found: pa.Table) -> pa.Array:
    """Of each position whether it failed before; of first releases the check of the schedule tells."""
    return pa.repeat(pa.scalar("number" in found.column_names), found.num_rows)


def _findings(look: Look, found: pa.Table, gone: int) -> Iterator[Finding]:
    handed = pc.add(found["shown"], found["hidden"])
    none = pc.equal(pc.add(pc.add(handed, found["refused"]), found["held"]), 0)
    # A command gave it another due time: it is released once more for that.
    own = pc.subtract(found["released"], found["later"])
    lost = found.filter(pc.and_(pc.greater(own, found["unread"]), none))
    # What was in prepared files that are gone is a finding of its own, with its own remedy.
    for subject, text in positions.described(lost) if lost.num_rows > gone else ():
        lost_text = f"{text} released, and dispatch has read them and not handed them over"
        yield error("not_delivered", subject, lost_text, look.rebuild(DISPATCH))
    held_too = pc.and_(pc.greater(found["held"], 0), pc.greater(pc.add(handed, found["held"]), own))
    held_too = pc.and_(held_too, pc.greater(own, 0))
    for subject, text in positions.described(found.filter(held_too)):
        remedy = f"pause {subject}, stop dispatch, and delete one row of each from `held`; what is delivered stays so"
        yield error("held_twice", subject, f"{text} in `held` and there or in `deliveries` once more", remedy)
    again = pc.and_(pc.greater(found["released"], 1), _comes_again(found))
    for subject, text in positions.described(found.filter(again)):
        remedy = (
            "acknowledge each once: that settles both; whoever does not acknowledge tells them by `redelivery_count`"
        )
        yield error("released_twice", subject, f"{text} in `redelivery` twice with one redelivery count", remedy)
    twice = found.filter(pc.and_(pc.greater(handed, own), pc.greater(found["released"], 0)))
    for subject, text in positions.described(twice):
        remedy = "restore `deliveries` from before, or tell the consumers: rows are never taken back"
        yield error("delivered_twice", subject, f"{text} in `deliveries` more than once", remedy)
    there = pc.add(handed, found["held"])
    unknown = found.filter(pc.and_(pc.greater(there, 0), pc.equal(found["released"], 0)))
    for subject, text in positions.described(unknown):
        remedy = "restore `redelivery` from the same copy as `deliveries`; a rebuild would deliver them once more"
        yield error("not_released", subject, f"{text} delivered or held, and not in `redelivery`", remedy)

"""Check of the schedule: what was addressed to a subscription and is due was released once, and is a message."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.subscribing.lives import lives_in
from pipeline.config.stages import SCHEDULE
from pipeline.delta.deltars import arrow_of, instant, query
from pipeline.doctor import positions
from pipeline.doctor.check_dispatch import handed_over
from pipeline.doctor.look import Finding, Look, Opened, Place, error
from pipeline.doctor.positions import FIGURES, KEYS, above, ms
from pipeline.doctor.stages import Standing
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from schemas import MESSAGES, REDELIVERY, RESCHEDULED, SEGMENTS
from state.buckets import tick_bits, trim_down

_REBUILD = "rebuild"
_MARKERS = """
    SELECT MAX(marker) AS marker, MAX(next_ledger) AS next_ledger, MAX({loaded}) AS loaded
    FROM segments WHERE kind = 'marker' AND marker <= {last}
"""
_ANY = (1 << 63) - 1
_FIRST = f"cause <> '{RESCHEDULED}'"
"""What got another due time is released in another round, too."""


@dataclass(frozen=True)
class Taken:
    """What the schedule has taken in, by its last committed batch; times in ms UTC.

    Attributes:
        watermark: what is due by then is released.
        next_ledger: ledgers before it are addressed.
        loaded: what is due before it is addressed.
        listeners: the present lives of those who listen.
    """

    watermark: int
    next_ledger: int
    loaded: int
    listeners: Mapping[Name, Incarnation]

    def until(self, life: Incarnation) -> int:
        """The last due time of what must be released to a subscription: its bucket ends by the watermark."""
        return min(trim_down(self.watermark, tick_bits(life.tick_ms)), self.loaded - 1)


def released(look: Look) -> Iterator[Finding]:
    """Every position that is due has been released to every subscription it was addressed to, once."""
    taken = _taken(look)
    if taken is None or not taken.listeners:
        return
    listeners = positions.listening(taken.listeners)
    redelivery = look.table(REDELIVERY)
    due = f"{above(look.mark, 'message_due')} AND {ms('due_time')} <= {taken.watermark} AND {_FIRST}"
    given = positions.only(positions.counted(redelivery, due, runs=True), listeners, KEYS[:3])
    asked = _addressed(look, taken)
    found = [_compared(look, taken, keys) for keys in positions.portions(positions.differing([asked], [given]))]
    if found:
        yield from _findings(look, pa.concat_tables(found))


def _taken(look: Look) -> Taken | None:
    """None when nobody can tell: the schedule is new, or takes in what its rebuild wrote."""
    stage = look.stages[SCHEDULE]
    place, watermark = stage.place(stage.committed), stage.watermark(stage.committed)
    if stage.committed < 0 or place is None or not watermark:
        return None
    segments = look.table(SEGMENTS)
    last = _last_marker(segments, place, stage)
    if last is None:
        return None
    row = query(_MARKERS.format(loaded=ms("loaded_until"), last=last), segments=segments.delta)[0]
    if row["marker"] is None:
        return None
    then = alive(lives_in(segments.delta, last))
    same = {name: life for name, life in look.lives.items() if then.get(name) == life}
    return Taken(watermark, row["next_ledger"], row["loaded"], same)


def _last_marker(segments: Opened, place: Place, stage: Standing) -> int | None:
    """The last marker in the versions that were taken as a whole; None when nobody can tell."""
    taken = segments.log.added(place[0]) if place[1] >= 0 else None
    partly = taken is None or place[1] + 1 < len(taken)
    rest = segments.log.after((place[0], -1) if partly else (place[0] + 1, -1))
    if rest is None:
        return None
    first = _ANY
    for _, file in rest:
        rows = segments.rows(file["path"], ["kind", "marker", "batch_id"])
        mine = pc.and_(pc.equal(rows["kind"], _REBUILD), pc.equal(rows["batch_id"], stage.origin.rebuilt))
        if stage.origin.rebuilt is not None and pc.any(mine).as_py():
            return None
        first = min(first, pc.min(rows["marker"]).as_py() or _ANY)
    return first if first == _ANY else first - 1


def _addressed(look: Look, taken: Taken) -> pa.Table:
    """Counts of what must be released, by subscription and ledger. The log is read once, whoever listens."""
    times = sorted({taken.until(life) for life in taken.listeners.values()})
    figures = ", ".join(
        f"SUM(CASE WHEN due <= {time} THEN {value} ELSE 0 END) AS {name}{number}"
        for number, time in enumerate(times)
        for name, value in zip(FIGURES, ("1", "2 * entry_id", "6 * entry_id * entry_id"), strict=True)
    )
    # What is due later is not looked at, nor are its files opened: it may be nearly all that there is.
    where = f"{_in_log(look, taken)} AND due_time < {instant(times[-1] + 1)}"
    rows = f"SELECT topic, ledger_id, entry_id, {ms('due_time')} AS due FROM messages WHERE {where}"  # noqa: S608
    sql = f"SELECT topic, ledger_id, {figures} FROM ({rows}) GROUP BY topic, ledger_id"  # noqa: S608
    counts = arrow_of(sql, messages=look.table(MESSAGES).delta)
    counts = counts.set_column(0, "topic", counts.column("topic").cast(pa.string()))
    parts = [
        _heard(
            counts.select(["topic", "ledger_id", *(f"{name}{number}" for name in FIGURES)]).rename_columns(
                ["topic", "ledger_id", *FIGURES]
            ),
            {name: life for name, life in taken.listeners.items() if taken.until(life) == time},
        )
        for number, time in enumerate(times)
    ]
    return pa.concat_tables(parts)


def _in_log(look: Look, taken: Taken) -> str:
    return f"{above(look.mark, 'due_time')} AND ledger_id < {taken.next_ledger}"


def _heard(counts: pa.Table, listeners: Mapping[Name, Incarnation]) -> pa.Table:
    """Counts of a topic for each of its subscriptions, from its first ledger on."""
    joined = counts.filter(pc.greater(counts["n"], 0)).join(positions.listening(listeners), "topic", join_type="inner")
    return joined.filter(pc.greater_equal(joined["ledger_id"], joined["since"])).select([*KEYS, *FIGURES])


def _compared(look: Look, taken: Taken, keys: pa.Table) -> pa.Table:
    """Position by position: how often a message is in the log, must be released, is, and was handed over."""
    ledgers = positions.within(keys)
    columns = f"topic, ledger_id, entry_id, {ms('due_time')} AS due"
    sql = f"SELECT {columns} FROM messages WHERE {above(look.mark, 'due_time')} AND {ledgers}"  # noqa: S608
    log = arrow_of(sql, messages=look.table(MESSAGES).delta)
    log = log.set_column(0, "topic", log.column("topic").cast(pa.string()))
    log = log.join(_with_until(taken), "topic", join_type="inner")
    log = positions.only(log, keys)
    within = pc.and_(pc.equal(log["ledger_id"], log["since"]), pc.greater_equal(log["entry_id"], log["from_entry"]))
    mine = pc.or_(pc.greater(log["ledger_id"], log["since"]), within)
    asked = pc.and_(pc.less_equal(log["due"], log["until"]), mine)
    asked = pc.and_(asked, pc.less(log["ledger_id"], taken.next_ledger))
    runs = f"{above(look.mark, 'message_due')} AND {ledgers} AND {_FIRST}"
    given = positions.only(positions.taken_apart(look.table(REDELIVERY), runs, runs=True), keys)
    sides = {"there": log, "asked": log.filter(asked), "given": given, "handed": handed_over(look, keys)}
    return positions.side_by_side(sides)


def _with_until(taken: Taken) -> pa.Table:
    until = pa.array([taken.until(life) for life in taken.listeners.values()], pa.int64())
    return positions.listening(taken.listeners).append_column("until", until)


def _findings(look: Look, found: pa.Table) -> Iterator[Finding]:
    # Of what was handed over the check of dispatch tells: a rebuild would release it once more.
    never = pc.equal(pc.add(found["given"], found["handed"]), 0)
    lost = found.filter(pc.and_(pc.greater(found["asked"], 0), never))
    for subject, text in positions.described(lost):
        remedy = look.rebuild(SCHEDULE)
        yield error("not_released", subject, f"{text} due and not in `redelivery`: lost in the schedule", remedy)
    twice = found.filter(pc.greater(found["given"], 1))
    for subject, text in positions.described(twice):
        remedy = "stop all stages and tell us: this must not happen"
        yield error("released_twice", subject, f"{text} more than once in `redelivery`", remedy)
    unknown = found.filter(pc.and_(pc.equal(found["there"], 0), pc.greater(found["given"], 0)))
    for subject, text in positions.described(unknown):
        remedy = "restore `messages` from the copy that has them, or all tables from one copy (docs/operations.md)"
        yield error("not_a_message", subject, f"{text} in `redelivery` and not in `messages`", remedy)

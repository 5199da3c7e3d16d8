"""Schedules on the command line: what is stated of one, and the times at which it comes, as text or JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from jobs.commands.columns import in_columns
from pipeline.config.spelling import iso_text
from pipeline.subscriptions.schedules import Schedule
from state.localtime import local_time, offset_s
from state.recurrence import Applied, Occurrence
from state.units import Ms

_HEADS = ("LOCAL TIME", "OFFSET", "UTC", "RULE")
_RULES = {
    Applied.GAP_AFTER: "{} is skipped: right after it",
    Applied.FOLD_FIRST: "{} comes twice: the first",
    Applied.FOLD_BOTH: "{} comes twice: both",
    Applied.DAY_OFF_NEXT: "{} is a day off: the next one",
    Applied.DAY_OFF_PREVIOUS: "{} is a day off: the one before",
}


@dataclass(frozen=True)
class Coming:
    """An occurrence of a schedule, as it is shown.

    Attributes:
        occurrence: its time, ms UTC.
        local_time: what clocks of its zone show then.
        utc_offset: how far they are ahead of UTC.
        due: when its message is due: the jitter later, ms UTC.
        nominal: the local time that the notation says.
        rules: why it is not that time, or which of two it is.
    """

    occurrence: int
    local_time: str
    utc_offset: str
    due: int
    nominal: str
    rules: tuple[str, ...]


def coming(schedule: Schedule, after_ms: int, count: int) -> list[Coming]:
    """The next occurrences of a schedule after an instant (ms UTC)."""
    return [_shown(schedule, each) for each in islice(schedule.recurrence.after(Ms(after_ms)), count)]


def lines(found: Sequence[Coming]) -> Iterator[str]:
    """For people: a line each, in columns."""
    if not found:
        yield "It does not come any more."
        return
    heads = (*_HEADS, "DUE") if any(each.due != each.occurrence for each in found) else _HEADS
    yield from in_columns(heads, [_row(each)[: len(heads)] for each in found])


def _shown(schedule: Schedule, each: Occurrence) -> Coming:
    zone = schedule.recurrence.zone
    clock, nominal = local_time(each.at, zone), each.nominal
    return Coming(
        each.at,
        _clock(clock),
        _offset(offset_s(each.at, zone)),
        schedule.due(each),
        _clock(nominal),
        _texts(each.rules),
    )


def _texts(rules: Iterable[Applied]) -> tuple[str, ...]:
    return tuple(each.value for each in rules)


def _clock(local: datetime) -> str:
    return local.isoformat(sep=" ", timespec="milliseconds" if local.microsecond else "seconds")


def _offset(seconds: int) -> str:
    sign, span = "-" if seconds < 0 else "+", timedelta(seconds=abs(seconds))
    return f"{sign}{str(span).zfill(8).removesuffix(':00')}"


def _row(each: Coming) -> list[str]:
    rule = "; ".join(_RULES[Applied(name)].format(each.nominal) for name in each.rules) or "-"
    return [each.local_time, each.utc_offset, iso_text(each.occurrence), rule, iso_text(each.due)]

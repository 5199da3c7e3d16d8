"""`delayline top`: how a warehouse stands, on a terminal, brought up to date while somebody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.commands.columns import in_columns
from jobs.commands.status import report
from jobs.niceness import be_nice
from jobs.terminal import echo
from jobs.withoutpandas import leave_out_pandas
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, spell
from pipeline.insight.duecounts import DueCounts
from pipeline.insight.overview import Overview, OverviewFollower

_BARS = " ▁▂▃▄▅▆▇█"
_HEADS = ("SUBSCRIPTION", "PENDING", "NEXT DUE", "HELD", "STATE")


def top(root: str, every_s: float, clock: Callable[[], int]) -> None:
    """Show how a warehouse stands until somebody interrupts; once where nobody looks at a terminal.

    Args:
        root: the warehouse.
        every_s: between two looks.
        clock: gives the time, ms UTC.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    leave_out_pandas()
    follower = OverviewFollower(root)
    if not sys.stdout.isatty():
        for line in lines(follower.look(clock())):
            echo(line)
        return
    be_nice()
    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(lines(follower.look(clock())))), refresh=True)
            time.sleep(every_s)


def lines(seen: Overview) -> Iterator[str]:
    """Lines for a terminal."""
    yield from report(seen)
    yield f"next hour      {bars(seen.hour)}  {seen.hour.total:,}"
    yield f"next week      {bars(_days(seen.week))}  {seen.week.total:,}"
    yield ""
    yield from in_columns(_HEADS, list(_rows(seen)))


def bars(load: DueCounts) -> str:
    """What is due in each span as a row of bars, the highest of which is full."""
    most = max(load.counts, default=0)
    return "".join(_BARS[-(-each * 8 // most)] if most else _BARS[0] for each in load.counts)


def _days(load: DueCounts) -> DueCounts:
    """A week by six hours, as wide as a terminal may be."""
    parts = [sum(load.counts[at : at + 6]) for at in range(0, len(load.counts), 6)]
    return DueCounts(load.begin, 6 * load.span_ms, tuple(parts))


def _rows(seen: Overview) -> Iterator[list[str]]:
    for each in seen.pending.backlogs:
        name = printable(f"{each.topic}/{each.subscription}")
        due = "-" if each.next_due is None else _due(each.next_due - seen.now_ms)
        rate = f"{each.max_rate:,} a second" if each.max_rate else "open"
        closed = rate if each.closed_until is None else f"closed until {iso_text(each.closed_until)[:16]}"
        state = "guard fails" if each.guard_error is not None else "paused" if each.paused else closed
        yield [name, f"{each.count:,}", due, f"{each.held:,}" if each.held else "-", state]


def _due(left_ms: int) -> str:
    return f"in {spell(left_ms)}" if left_ms >= 0 else f"{spell(left_ms)} ago"

"""`delayline import`: how far an import is, and what it says in the end."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from pipeline.config.options import OnStep
from pipeline.config.printed import printable
from pipeline.moving.pulsar import Taken


def followed(steps: Iterable[Taken], on_step: OnStep) -> Iterator[Taken]:
    """Say how much of what waits in a partition was looked at; give the last step of each."""
    last: Taken | None = None
    for step in steps:
        if last is not None and last.partition != step.partition:
            yield last
        last = step
        on_step(f"import {printable(step.partition)}", step.examined, max(step.unacknowledged, step.examined))
    if last is not None:
        yield last


def report(found: Sequence[Taken], *, dry: bool) -> Iterator[str]:
    """Lines for people: one a partition that had something."""
    would = "would take" if dry else "took"
    for each in found:
        due = "" if each.first_due_ms is None else f", due from {_time(each.first_due_ms)} to {_time(each.last_due_ms)}"
        yield f"{printable(each.partition)}  {would} {each.taken:,}{due}"
        yield f"  {each.before:,} seen by an earlier run, {each.left:,} stay with Pulsar: not delayed, or due soon"
        if each.unfit:
            yield f"  {each.unfit:,} stay with Pulsar, as no message here can be like them"
            yield from (f"    {printable(problem)}" for problem in each.problems)
        if each.acknowledged:
            yield f"  {each.acknowledged:,} acknowledged in Pulsar"
    if not found:
        yield "Nothing waits there."


def _time(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1_000, UTC).isoformat(" ", "seconds")

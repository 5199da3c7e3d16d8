"""`delayline status`: how a warehouse stands, on one screen, as text or JSON."""

from collections.abc import Iterator, Sequence

from jobs.commands.jsonform import json_line, record
from jobs.commands.pending import counted
from jobs.commands.subscriptions import records
from pipeline.client.insight.standing import Standing
from pipeline.client.tables.job import FRESH_MS
from pipeline.config.paths import local_path
from pipeline.config.printed import printable
from pipeline.config.spelling import command_line, late_text, spell
from pipeline.doctor.examine import Report
from pipeline.doctor.look import Severity
from pipeline.insight.overview import Overview, OverviewFollower

_REJECTED = "rejected"
"""The word of the doctor for what was refused."""


def look(root: str, now_ms: int) -> Overview:
    """Look at everything, at a time (ms UTC).

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    return OverviewFollower(root).look(now_ms)


def report(status: Overview) -> Iterator[str]:
    """Lines for people: one a subject."""
    lines = {
        "job": _job(status),
        "waits": _waits(status),
        "late": _late(status),
        "subscriptions": _subscriptions(status.standings),
        "rejected": "; ".join(_rejected(status.found)) or "nothing",
        "doctor": _doctor(status),
    }
    yield printable(status.root)
    yield from (f"{name:<13}  {text}" for name, text in lines.items())


def as_json(status: Overview) -> str:
    """The same for scripts."""
    job, found = status.job, status.found
    return json_line(
        record(
            warehouse=status.root,
            process=job.process,
            seen_ms=job.seen,
            behind_ms=job.behind_ms,
            pending=status.figures.count,
            next_due=status.figures.next_due_ms,
            last_due_minute=status.figures.last_due_ms,
            overdue=status.figures.overdue,
            late_p50_ms=status.late.p50_ms,
            late_p99_ms=status.late.p99_ms,
            in_inbox=status.pending.in_inbox,
            subscriptions=records(status.standings, status.pending),
            healthy=found and found.healthy,
            findings=found and found.findings,
        )
    )


def _job(status: Overview) -> str:
    job = status.job
    if job.seen is None:
        never = f"has never run; start it with: {command_line(status.root, 'run')}"
        return never if job.process is None else f"starts, process {job.process}"
    ago_ms = max(0, status.now_ms - job.seen)
    seen = f"last seen {spell(ago_ms)} ago"
    behind = "" if job.lag_ms is None else f", {job.lag_ms / 1_000:.1f} s behind"
    if job.process is not None:
        return f"runs, process {job.process}, {seen}{behind}"
    if ago_ms >= FRESH_MS:
        return f"does not run, {seen}"
    return f"{seen}{behind}" if local_path(status.root) is None else f"no process of this machine runs it, {seen}"


def _waits(status: Overview) -> str:
    figures = status.figures
    more = [f"{figures.held:,} of them held"] if figures.held else []
    for count, text in ((status.outstanding, "outstanding"), (status.waiting, "to come again")):
        more += [f"{count:,} {text}"] if count else []
    more += [f"{status.pending.in_inbox:,} in the inbox"] if status.pending.in_inbox else []
    return ", ".join([counted("", figures.count, figures.next_due_ms, status.now_ms).strip(), *more])


def _late(status: Overview) -> str:
    late = status.late
    if late.is_virtual:
        return "not told: by a virtual clock all that is due in a step comes at its end"
    if late.p50_ms is None or late.p99_ms is None:
        return "nothing was delivered in the last hour"
    return f"at most {late_text(late.p50_ms)} (p50), {late_text(late.p99_ms)} (p99), of {late.count:,} in the last hour"


def _subscriptions(found: Sequence[Standing]) -> str:
    topics = len({each.line.topic for each in found})
    paused, consumers = sum(each.line.policies.paused for each in found), sum(len(each.consumers) for each in found)
    text = f"{len(found):,} of {topics:,} topics, {consumers:,} consumers"
    return f"{text}, {paused:,} paused" if paused else text


def _rejected(found: Report | None) -> Iterator[str]:
    for each in found.findings if found else ():
        if each.what == _REJECTED:
            yield f"{each.subject.removeprefix('rejected_')}: {printable(each.text)}"


def _doctor(status: Overview) -> str:
    if status.found is None:
        return "has not finished yet"
    wrong = [each for each in status.found.findings if each.severity is not Severity.NOTE]
    if not wrong:
        return "nothing is wrong"
    first = min(wrong, key=lambda each: each.severity is not Severity.ERROR)
    more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    text = printable(f"{first.severity.value}: {first.subject}: {first.text}")
    return f"{text}{more}; look at: {command_line(status.root, 'doctor')}"

"""Checks of what recurs: schedules are followed and planned, and all have one release of the rules of zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pipeline.config.settings import MINUTE_MS
from pipeline.config.spelling import iso_text
from pipeline.config.stages import INGEST, SETTLE
from pipeline.config.zones import RULES
from pipeline.delta.deltars import query
from pipeline.doctor.look import Finding, Look, Opened, warning
from pipeline.storage.files import Files
from pipeline.subscriptions.calendars import Calendars
from pipeline.subscriptions.scheduleplans import NAME, Plan, PlanFile, Versions
from pipeline.subscriptions.schedules import Schedule, ScheduleRow, schedule_rows
from schemas import CALENDARS, CURSORS, INBOX, MESSAGES, SCHEDULES
from state.units import Ms

_SHOWN = 10
_UNNAMED = "(no name)"
_START = "start the stages; if they run, look at their log"


def recurring(look: Look) -> Iterator[Finding]:
    """Each schedule is followed, by what it says now, and planned to later than now."""
    opened = [look.table(SCHEDULES), *([look.table(CALENDARS)] if CALENDARS.name in look.tables else [])]
    rows = schedule_rows(query("SELECT * FROM t", t=opened[0].delta), look.calendars)
    yield from _refused(look, rows)
    yield from _no_days(look.calendars)
    plan = _plan(look)
    followed = [each.schedule for each in rows if each.schedule is not None and not each.schedule.paused]
    if look.virtual or not (followed or plan is not None):
        return
    known = (0, 0) if plan is None else plan.versions
    if plan is None or any(each.log.newest > version for each, version in zip(opened, known, strict=False)):
        yield from _waits(look.now_ms, opened, known)
    elif plan.until < look.now_ms:
        yield from _stands(plan, followed, look.now_ms)


def _refused(look: Look, rows: Sequence[ScheduleRow]) -> Iterator[Finding]:
    """Any writer may write rows that nobody can follow."""
    refused = [each for each in rows if each.error is not None]
    for each in refused[:_SHOWN]:
        remedy = "set it right with " + look.command("schedule", "set") + ", or delete the row"
        yield warning("schedule_refused", each.name or _UNNAMED, f"it is not followed: {each.error}", remedy)
    if len(refused) > _SHOWN:
        text = f"{len(refused) - _SHOWN:,} more schedules are not followed"
        yield warning("schedule_refused", SCHEDULES.name, text, "see " + look.command("schedule", "list"))


def _no_days(days: Calendars) -> Iterator[Finding]:
    """The other days of their calendars count."""
    for name, refused in days.refused.items():
        text = f"{len(refused):,} rows are not followed, the first: {refused[0]}"
        yield warning("calendar_refused", name or _UNNAMED, text, "set it again, or delete these rows")


def _plan(look: Look) -> Plan | None:
    """What is planned; None: nothing, or nobody knows."""
    number = look.table(INBOX).delta.transaction_version(NAME)
    found = PlanFile(Files(), look.root).read(number)
    return None if found is None else found[0]


def _waits(now_ms: int, opened: Sequence[Opened], known: Versions) -> Iterator[Finding]:
    """A change that nobody has followed for a minute."""
    changes = (_committed(each, version + 1) for each, version in zip(opened, known, strict=False))
    changed = min((each for each in changes if each is not None), default=now_ms)
    if changed < now_ms - MINUTE_MS:
        text = f"a change of {iso_text(changed, 'seconds')} is not followed yet"
        yield warning("schedules_behind", SCHEDULES.name, text, _START)


def _committed(opened: Opened, first: int) -> int | None:
    """When the first commit of rows from a version on was made, of those that are still known, ms UTC."""
    for version in (each for each in opened.log.versions if each >= first):
        actions = opened.log.actions(version) or []
        at = next((each["commitInfo"].get("timestamp") for each in actions if each.get("commitInfo")), None)
        if isinstance(at, int) and any("add" in each or "remove" in each for each in actions):
            return at
    return None


def _stands(plan: Plan, followed: Sequence[Schedule], now_ms: int) -> Iterator[Finding]:
    """What is planned ends before now, and something has occurred since."""
    missed = [each.name for each in followed if _has_missed(each, plan, now_ms)]
    if missed:
        text = f"planned until {iso_text(plan.until, 'seconds')} only; {len(missed):,} schedules miss what comes since"
        yield warning("schedules_behind", SCHEDULES.name, text, _START)


def _has_missed(schedule: Schedule, plan: Plan, now_ms: int) -> bool:
    """Whether something occurred that is not planned. The next one behind the end of the plan may be."""
    first, *more = [*islice(schedule.recurrence.after(Ms(plan.until)), 2)] or (None,)
    if first is not None and first.at <= plan.until + plan.ahead_ms:
        first = more[0] if more else None
    return first is not None and first.at < now_ms - MINUTE_MS


def zone_rules(look: Look) -> Iterator[Finding]:
    """Whoever finds times in zones has one release of their rules, where there is a window or a schedule."""
    plan = _plan(look)
    if plan is None and not look.registry.registered.topics.windows:
        return
    noted = {
        "the planner": None if plan is None else plan.rules,
        INGEST: _noted(INGEST, look.table(MESSAGES)),
        SETTLE: _noted(SETTLE, look.table(CURSORS)),
        "this machine": RULES,
    }
    known: Mapping[str, str] = {who: rules for who, rules in noted.items() if rules}
    if len(set(known.values())) > 1:
        text = "releases of the rules of time zones differ: " + ", ".join(
            f"{who} {each}" for who, each in known.items()
        )
        remedy = "install one release of `tzdata` on all machines, and start the stages again"
        yield warning("other_zone_rules", "tzdata", text, remedy)


def _noted(stage: str, opened: Opened) -> str | None:
    """The release that a stage noted with its last commit."""
    last = opened.log.last_note(stage)
    return None if last is None else last.note.get("rules")

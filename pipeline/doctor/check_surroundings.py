"""Checks of what is around the tables: the clock, the room on the disk, and what was refused."""

import shutil
from collections.abc import Iterator

import schemas
from pipeline.config.paths import local_path
from pipeline.config.settings import DAY_MS, HOUR_MS, LiveClock
from pipeline.config.sources import SOURCES
from pipeline.config.spelling import iso_text, spell, subscription_options
from pipeline.config.stages import DISPATCH, SETTLE
from pipeline.delta.deltars import query
from pipeline.doctor.look import Finding, Look, error, note, warning
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import GuardStates
from pipeline.subscriptions.sourcenotes import SourceNotes, keys, noted_by_others, source_states

_AHEAD_MS = LiveClock().lookahead_ms + LiveClock().max_jump_ms
"""A start is refused when the clock of its stage is further ahead, unless the profile allows for more."""
_LEAST_BYTES, _LEAST_SHARE, _LITTLE_SHARE = 100 << 20, 0.01, 0.05
_SHOWN = 10
_HOURS_MS = 28 * DAY_MS
"""Open hours are looked at for so long."""


def clock(look: Look) -> Iterator[Finding]:
    """No stage stands at a time that is still to come."""
    if look.virtual:
        return
    for name, instant in _instants(look):
        if instant > look.now_ms + _AHEAD_MS:
            text = f"it stands at {iso_text(instant, 'seconds')}, which is still to come"
            anew = look.command("rebuild", "--stage", "all", "--reset-clock")
            remedy = f"correct the clock of this machine, or wait, or {anew}"
            yield warning("clock_ahead", name, text, remedy)


def _instants(look: Look) -> Iterator[tuple[str, int]]:
    """Stages whose starts look at the clock, each with the instant of its last batch, ms UTC."""
    for name, stage in look.stages.items():
        end = stage.end(stage.last)
        if name != DISPATCH and end is not None:
            yield name, end.instant
    # Settle has no query whose checkpoint says it.
    settled = look.table(schemas.CURSORS).log.last_note(SETTLE)
    if settled is not None:
        yield SETTLE, int(settled.note.get("now", 0))


def space(look: Look) -> Iterator[Finding]:
    """A local warehouse has room to grow."""
    here = local_path(look.root)
    if here is None:
        return
    total, _, free = shutil.disk_usage(here)
    text = f"{free / 1e9:.1f} GB of {total / 1e9:.1f} GB are free ({free / total:.1%})"
    remedy = "make room; the stages go on by themselves, or start them again"
    if free < max(_LEAST_BYTES, total * _LEAST_SHARE):
        yield error("disk_full", look.root, text, remedy)
    elif free < total * _LITTLE_SHARE:
        yield warning("disk_filling", look.root, text, remedy)


def sources(look: Look) -> Iterator[Finding]:
    """No source stands still; how far each is behind."""
    for each in source_states(Files(), look.root).all().values():
        if each.error is not None:
            remedy = "mend what it says; the source begins again by itself"
            yield warning("source_stands_still", each.name, f"it stands still: {each.error}", remedy)
        elif each.behind:
            yield note("source_behind", each.name, f"it has yet to read {each.behind:,} rows")
    log, files = look.table(schemas.INBOX).log, Files()
    for name in keys(files, look.root):
        entries = ((version, log.actions(version) or []) for version in reversed(log.versions))
        last, others = SourceNotes(files, look.root, name, f"{SOURCES}{name}").last(entries)
        if others:
            text = f"versions {', '.join(map(str, others[:_SHOWN]))} of `inbox` note places under its name"
            remedy = "ask who appends there; the source goes on where it was"
            remedy = remedy if last is not None else "give the source another name in the profile"
            yield warning("noted_by_others", name, text, remedy)
    for found in noted_by_others(look.root):
        text = f"the number {found.number} under its name is not its own, allowed: {found.allowed}"
        remedy = "find out how far it is, and append once to `inbox` with the right number under that name (`txn`)"
        yield warning("noted_by_others", found.name, text, remedy)


def guards(look: Look) -> Iterator[Finding]:
    """Each guard can be evaluated."""
    registered = {each.named: each.policies.guard for each in look.registry.subscriptions}
    for name, why in sorted(GuardStates(Files(), look.root).errors(registered).items()):
        remedy = "mend what it says; what waits then comes by itself. Or set another guard"
        yield warning("guard_fails", "/".join(name), f"its guard fails, and what it guards waits: {why}", remedy)


def hours(look: Look) -> Iterator[Finding]:
    """What is due while a subscription is closed lives until that opens."""
    registered = look.registry.registered
    for name, own in sorted(registered.hours.items()):
        ttl_ms = registered.shapings[name].ttl_ms
        found = own.openings(look.now_ms, look.now_ms + _HOURS_MS)
        longest = int((found.opens[1:] - found.closes[:-1]).max(initial=0))
        if ttl_ms is not None and longest > ttl_ms:
            text = (
                f"it is closed for up to {spell(longest)}, and what is due then lives for {spell(ttl_ms)}: it expires"
            )
            longer = ("policy", "set", *subscription_options(*name), "--ttl", f"{-(-longest // HOUR_MS)}h")
            yield warning("expires_closed", "/".join(name), text, f"if it shall come: {look.command(*longer)}")


def lines(look: Look) -> Iterator[Finding]:
    """Each subscription has one line of the registry; of two, which only somebody else writes, one counts."""
    named = "SELECT topic, subscription, COUNT(*) AS n FROM t WHERE active GROUP BY topic, subscription"
    sql = f"SELECT * FROM ({named}) WHERE n > 1 ORDER BY n DESC LIMIT {_SHOWN}"  # noqa: S608 - a number
    for row in query(sql, t=look.table(schemas.SUBSCRIPTIONS).delta):
        text = f"{row['n']} lines of `subscriptions` name it, and one of them counts: the one with the finest tick"
        remedy = "delete the others from `subscriptions`"
        yield warning("two_lines", f"{row['topic']}/{row['subscription']}", text, remedy)


def rejected(look: Look) -> Iterator[Finding]:
    """Rows that were refused, by reason: the senders' matter."""
    for table in schemas.REJECTED:
        # The schedule names the error first; what it was about makes each reason another one.
        reason = "'refused by the index'" if table is schemas.REJECTED_SCHEDULE else "reason"
        # What dispatch left out by a command, a policy or a guard was not refused.
        where = f"WHERE reason NOT IN {schemas.LEFT_OUT}"
        sql = f"SELECT {reason} AS reason, COUNT(*) AS n FROM t {where} GROUP BY 1 ORDER BY 2 DESC LIMIT {_SHOWN}"  # noqa: S608
        found = query(sql, t=look.table(table).delta)
        if found:
            text = ", ".join(f"{row['n']:,} {row['reason']}" for row in found)
            yield note("rejected", table.name, text)

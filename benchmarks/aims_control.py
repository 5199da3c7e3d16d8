"""The table of all benchmarks: the lines of commands, a pause and a rate, and of the space that commands free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks import space
from benchmarks.support.lines import MILLION, Line, Row
from schemas import MESSAGES, SEGMENTS

_LATE_S, _COMMAND_S, _LOOK_S, _OFF_S, _RATED_S, _GROWN_MB = 1, 10, 3, 1, 2, 256
"""What is allowed: lateness of the load (p99), a command, a dry run, what `pending` said; of a rate; of memory."""
_FORECAST_S = 10
"""A forecast of a day, with two rates and an outage."""
_FREED, _LEFT = 1.1, 0.55
"""What is cancelled leaves so much of what is delivered; of messages so much of all stays when half of them go."""
_PLANNED_S, _SCHEDULES = 60, 100_000
"""A million occurrences planned, and how many schedules that is for."""
_UNEVEN, _COSTS = 0.05, 1.05
"""By how much a second of an opening may differ from the mean, and what a window may cost ingest."""
_KEYS_MB, _KEYS_FOUND, _TAKEN, _KEYS_BESIDE, _EXTENDED_MS = 250, 500_000, 100_000, 1.02, 300_000
"""Of keys: memory of ten million, look-ups and messages a second, what they cost other topics, and the longest wait."""
_SINGLE_MS, _SHARES = 2_000, 0.05
"""A message of a tenant with one comes after so long, and equal tenants have shares that differ by no more."""
_LOOKS = ("dry run", "dry run by key", "dry run of shift", "cancel by key")
_COMMANDS = ("cancel", "undo", "shift", "undo of shift")
_INDEXED = "put in the index"


def lines(result: Row) -> Iterator[Line]:
    """What was measured, beside the aims. Sizes below a million have figures, and a verdict on the load alone."""
    for row in result["rows"]:
        kind, large = row["kind"], row["messages"] >= MILLION
        beside = f"{row['messages'] / MILLION:g} M, {row['load']:,}/s"
        for name, late in row["late"].items():
            figures = f"p50 {late['p50_s']}, p99 {late['p99_s']}, max {late['max_s']} s"
            before = f"at once, before: p99 {row['at once before']['p99_s']} s"
            good = late["count"] > 0 and late["p99_s"] <= _LATE_S
            yield Line(f"control, {kind}", f"load {name} beside {beside}", f"p99 <= {_LATE_S} s", figures, good, before)
        yield from {"commands": _commands, "pause": _pause, "rate": _rate}[kind](row, large=large)


def _commands(row: Row, *, large: bool) -> Iterator[Line]:
    times: Mapping[str, float] = row["commands_s"]
    for name, seconds in times.items():
        if name == "named":
            continue
        most = _LOOK_S if name == "dry run" else _COMMAND_S
        what = f"{seconds} s for {times['named']:,.0f} of {row['messages'] / MILLION:g} M"
        met = seconds <= most
        yield Line("control, commands", name, f"<= {most} s", what, met if large or not met else None)
    close = row["close"]
    what, met = f"{close['by_key_s']} s", close["by_key_s"] <= _LOOK_S and close["by_key_applied"] == 1
    yield Line(
        "control, commands", "cancel by key, applied", f"<= {_LOOK_S} s", what, met if large or not met else None
    )
    what = f"{close['named']} named: {close['applied']} applied, {close['too_late']} too late; {close['came']} came"
    whole = close["applied"] + close["came"] == close["sent"]
    met = whole and close["applied"] + close["too_late"] == close["named"]
    yield Line("control, commands", "due within half a minute, cancelled", "applied or too late, never half", what, met)
    what = f"{close['taken_came']} of {close['taken']} came"
    met = close["taken_came"] == close["taken"] > 0
    yield Line("control, commands", "those that dispatch had taken", "too late", what, met)


def _pause(row: Row, *, large: bool) -> Iterator[Line]:
    before, held, after = row["resident_mb"]
    what = f"{row['drained_s']} s, {row['disordered']} out of order"
    yield Line("control, pause", "after the resume, all in order", "0", what, not row["disordered"])
    met = max(held, after) - before <= _GROWN_MB
    memory = f"{before} MB before, {held} MB with all held, {after} MB after"
    yield Line("control, pause", "memory of the job", "flat", memory, met if large or not met else None)


def _rate(row: Row, *, large: bool) -> Iterator[Line]:
    wanted = row["messages"] / row["rate"]
    what = f"{row['took_s']} s, {row['disordered']} out of order"
    met = abs(row["took_s"] - wanted) <= _RATED_S and not row["disordered"]
    aim = f"{wanted:.0f} s +- {_RATED_S} s, in order"
    yield Line("control, rate", f"a burst at {row['rate']:,}/s", aim, what, met if large or not met else None)
    off = row["said_off_s"]
    yield Line("control, rate", "the end as `pending` said it", f"+- {_OFF_S} s", f"{off:+} s", abs(off) <= _OFF_S)


def commanded(result: Row) -> Iterator[Line]:
    """Commands without a running stage. Judged are ten million; what is put in the index counts for its command."""
    rows = result["rows"]
    count = next(row["messages"] for row in rows if row["what"] == "pending")
    for row, then in zip(rows, [*rows[1:], {"what": ""}], strict=True):
        most = _LOOK_S if row["what"] in _LOOKS else _COMMAND_S if row["what"] in _COMMANDS else None
        if most is None:
            continue
        seconds = row["seconds"] + (then["seconds"] if then["what"] == _INDEXED else 0)
        what = f"{seconds:.1f} s for {row['messages']:,} of {count / MILLION:g} M"
        met = seconds <= most and row["messages"] > 0
        judged = met if count >= 10 * MILLION or not met else None
        yield Line("commands", row["what"], f"<= {most} s", what, judged)


def foretold(result: Row) -> Iterator[Line]:
    """A forecast of a day. Judged is what the aim is for, a hundred million."""
    for row in result["rows"]:
        what, met = f"{row['seconds']:.1f} s for {row['messages'] / MILLION:g} M", row["seconds"] <= _FORECAST_S
        judged = met if row["messages"] >= 100 * MILLION else None
        yield Line("forecast, a day by the minute", row["what"], f"<= {_FORECAST_S} s for 100 M", what, judged)


def freed(result: Row) -> Iterator[Line]:
    """Bytes that are left of half of the messages, cancelled beside delivered."""
    rows = {row["kind"]: row["phases"] for row in result["rows"]}
    begin, end = (rows[space.CANCELLED][phase] for phase in (space.BEFORE, space.AFTER))
    other = rows[space.DELIVERED][space.AFTER]
    for name in (MESSAGES.name, SEGMENTS.name, space.INDEX):
        ours, theirs = (each.get(name, {"bytes": 0})["bytes"] for each in (end, other))
        what = f"{begin[name]['bytes']:,} bytes before, {ours:,} after"
        aim, met = f"<= {_FREED}x of delivered ones", ours <= _FREED * theirs
        if name == MESSAGES.name:
            aim, met = f"{aim}, <= {_LEFT}x of before", met and ours <= _LEFT * begin[name]["bytes"]
        yield Line("space, half is cancelled", name, aim, what, met, f"delivered: {theirs:,}")
    ours, theirs = (sum(each["bytes"] for each in phase.values()) for phase in (end, other))
    what, met = f"{ours:,} bytes after", ours <= _FREED * theirs
    yield Line(
        "space, half is cancelled",
        "all together",
        f"<= {_FREED}x of delivered ones",
        what,
        met,
        f"delivered: {theirs:,}",
    )


def windows(result: Row) -> Iterator[Line]:
    """Windows: where and when messages are due that were moved, and what that costs. Judged is a million of them."""
    rows = {row["case"]: row for row in result["rows"]}
    for case in ("zone of the topic", "zones of recipients"):
        row, usual = rows[case], rows["no window, spread as sent"]
        is_large = row["messages"] >= MILLION
        due = f"{row['outside']:,} outside, {100 * row['uneven']:.1f} % off the mean of a second"
        met = row["outside"] == 0 and row["uneven"] <= _UNEVEN
        yield Line(
            "windows", f"{case}: due in the opening", f"0 outside, <= {_UNEVEN:.0%}", due, met if is_large else None
        )
        cpu = row["cpu_seconds"] / usual["cpu_seconds"]
        told = f"{cpu:.2f}x the time of a processor"
        met = cpu <= _COSTS if is_large else None
        yield Line("windows", f"{case}: ingest", f"<= {_COSTS}x", told, met, f"{usual['cpu_seconds']:.1f} s without")


def recurring(result: Row) -> Iterator[Line]:
    """Schedules: a million occurrences planned, by the time of a processor. Judged are a hundred thousand schedules."""
    row = next(each for each in result["rows"] if each["what"] == "plan")
    seconds = row["cpu_s"] * MILLION / row["rows"]
    ours, met = f"{seconds:.1f} s with {row['rows']:,}", seconds <= _PLANNED_S
    judged = met if row["schedules"] >= _SCHEDULES or not met else None
    plain = next(each for each in result["rows"] if each["what"] == "append")
    beside = f"appended alone: {plain['cpu_s'] * MILLION / plain['rows']:.1f} s"
    yield Line("recurring", "a million occurrences planned", f"<= {_PLANNED_S} s of a core", ours, judged, beside)


def keys(result: Row) -> Iterator[Line]:
    """One message of a key waits. Memory is judged when ten million wait."""
    head, *batches, last = result["rows"]
    is_full = head["waiting"] >= 10 * MILLION
    kept, looks = head["bytes"] / MILLION, head["looked_up_a_second"]
    name, what = "keys", f"{kept:.0f} MB for {head['waiting'] / MILLION:g} M"
    yield Line(name, "memory", f"<= {_KEYS_MB} MB for 10 M", what, kept <= _KEYS_MB if is_full else None)
    yield Line(name, "looked up", f">= {_KEYS_FOUND:,}/s", f"{looks:,}/s", looks >= _KEYS_FOUND)
    plain, other, unique = batches
    rate, waits = unique["a_second"], unique["pending"] * 2 == plain["pending"] + unique["messages"]
    beside = f"no policy: {plain['a_second']:,}/s"
    yield Line(name, "ingest, half replace", f">= {_TAKEN:,}/s", f"{rate:,}/s", rate >= _TAKEN and waits, beside)
    wall, cpu = other["by_usual"]
    aim = f"<= {_KEYS_BESIDE} of no policy"
    yield Line(name, "another topic has the policy", aim, f"{cpu} of processors, {wall} of time", cpu <= _KEYS_BESIDE)
    came, apart = last["came"], last["apart_ms"]
    met = apart == [_EXTENDED_MS] and not last["late_ms"]
    yield Line(name, "a key sent each second", "comes each 300 s", f"{came} times, {apart} ms apart", met)


def turns(result: Row) -> Iterator[Line]:
    """Tenants that have turns, beside none. Judged is when a single message comes, and how even equal shares are."""
    plain, *others = result["rows"]
    for row in others:
        what, single = f"turns, {row['case']}", row["single_after_ms"]
        ours = "not yet" if single is None else f"{single / 1_000:g} s"
        if row["case"] != "many":
            met = single is not None and single <= _SINGLE_MS
            yield Line(what, "one message behind many", f"<= {_SINGLE_MS / 1_000:g} s", ours, met)
        if row["uneven"] is not None:
            met = row["uneven"] <= _SHARES
            yield Line(what, "shares", f"within {_SHARES:.0%}", f"{row['uneven']:.2%}", met)
        beside = f"without turns {plain['batch_ms']} ms"
        took = f"{row['batch_ms']} ms, the first one {row['looked_up_s']} s"
        yield Line(what, f"a batch, {row['messages'] / MILLION:g} M held", "", took, None, beside)

"""The table of all benchmarks: the lines of commands, a pause and a rate beside live load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.support.lines import MILLION, Line, Row

_LATE_S, _COMMAND_S, _LOOK_S, _OFF_S, _RATED_S, _GROWN_MB = 1, 10, 3, 1, 2, 256
"""What is allowed: lateness of the load (p99), a command, a dry run, what `pending` said; of a rate; of memory."""


def lines(result: Row) -> Iterator[Line]:
    """What was measured, beside the aims. Sizes below a million have figures, and a verdict on the load alone."""
    for row in result["rows"]:
        kind, large = row["kind"], row["messages"] >= MILLION
        beside = f"{row['messages'] / MILLION:g} M, {row['load']:,}/s"
        for name, late in row["late"].items():
            told = f"p50 {late['p50_s']}, p99 {late['p99_s']}, max {late['max_s']} s"
            before = f"at once, before: p99 {row['at once before']['p99_s']} s"
            good = late["count"] > 0 and late["p99_s"] <= _LATE_S
            yield Line(f"control, {kind}", f"load {name} beside {beside}", f"p99 <= {_LATE_S} s", told, good, before)
        yield from {"commands": _commands, "pause": _pause, "rate": _rate}[kind](row, large=large)


def _commands(row: Row, *, large: bool) -> Iterator[Line]:
    told: Mapping[str, float] = row["commands_s"]
    for name, seconds in told.items():
        if name == "named":
            continue
        most = _LOOK_S if name == "dry run" else _COMMAND_S
        what = f"{seconds} s for {told['named']:,.0f} of {row['messages'] / MILLION:g} M"
        met = seconds <= most
        yield Line("control, commands", name, f"<= {most} s", what, met if large or not met else None)


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

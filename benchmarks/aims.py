"""The table of all benchmarks: figures beside aims, and beside the baselines of the same run.

An aim that holds for a size is judged at that size only; smaller runs have a figure and no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import aims_consuming, aims_control, aims_page, backlog, day, knee
from benchmarks.support.lines import MILLION, Line, Row

Results = Mapping[str, Mapping[str, Any]]
"""What the benchmarks gave, by name."""
KNEE = 50_000
FLAT, NO_DRIFT = 1.5, 1.2
"""How much figures may grow: with the messages that wait, and from the begin of a long run to its end."""
IDLE_S, UP_S = 5, 10
"""Processor time of a minute in which nothing is due, and how long a start may take; s."""
FEW, FEW_S, BUSY = 1_000, 35, 20_000
"""Up to so many messages a second take so many CPU s a minute; from so many on what is due at once may take longer."""
SCALES = 1.6
"""So much faster is a large batch with two executors than with one."""
LONG = 200
"""Instants of a run that is long."""


def table(results: Results) -> Iterator[Line]:
    """The figures beside the aims, as far as the benchmarks were run."""
    for name, lines in _LINES.items():
        if name in results:
            yield from lines(results[name])


def _index(result: Row) -> Iterator[Line]:
    for row in result["rows"]:
        ours, others = row["ours"], row["baselines"][:2]
        if row["aim"] is None:
            continue
        smaller = _times({each["name"]: each["resident"] / ours["live"] for each in others})
        # With few messages the fixed part of an index is most of it, and starting a step most of the time.
        enough = ours["messages"] >= 2 * MILLION
        size, met = f"{ours['live']:.4f} B a message", ours["live"] <= row["aim"] if enough else None
        yield Line(row["workload"], "index, live", f"<= {row['aim']:g} B", size, met, f"smaller: {smaller}")
        rates, met = f"{ours['add']:.1f} and {ours['drain']:.1f} M/s", ours["add"] >= 5 and ours["drain"] >= 10
        faster = _times({each["name"]: ours["add"] / each["add"] for each in others})
        judged = met if enough else None
        yield Line(row["workload"], "index, adds and drains", ">= 5 and >= 10 M/s", rates, judged, f"adds: {faster}")
    for row in result["published"]:
        beside = f"published {row['published_mb']:g} MB"
        yield Line(row["workload"], "index, 10 million", "< 0.2 MB", f"{row['mb']:.4f} MB", row["mb"] < 0.2, beside)
    for row in result.get("steps", ()):
        where = f"{row['pending']:,} in {row['chunks']} chunks"
        if row["step"] == "drain":
            rate = row["per_us"]
            yield Line(row["workload"], f"index, {where}, at once", ">= 10 M/s", f"{rate:.1f} M/s", rate >= 10)
            continue
        cost = f"the first {row['ms']:.2f} ms, later ones {row['later_ms']:.2f} ms"
        yield Line(row["workload"], f"index, pop of {row['taken']:,} of {where}", "", cost, None)


def _outstanding(result: Row) -> Iterator[Line]:
    fewest: dict[bool, Row] = {}
    for row in result["rows"]:
        ours = row["ours"]
        if row["holes"]:
            what, met = f"{ours['stored'] / 1e6:.4f} MB", ours["stored"] <= 2e6
            yield Line(row["workload"], "settling, bytes of the cursor", "<= 2 MB", what, met)
            continue
        few = fewest.setdefault(row["anywhere"], row)
        cost = f"{ours['batch_ms']:.2f} ms, {ours['resident_mb']:.1f} MB"
        slower = _times({each["name"]: each["batch_ms"] / ours["batch_ms"] for each in row["baselines"]})
        beside = f"slower: {slower}" if slower else ""
        aim, met = "", None
        if row["messages"] > few["messages"]:
            growth = ours["batch_ms"] / few["ours"]["batch_ms"]
            more = ours["resident_mb"] - few["ours"]["resident_mb"]
            cost += f": {growth:.2f}x the time, {more:+.1f} MB"
            aim, met = f"<= {FLAT}x the time of {_short(few['messages'])}", growth <= FLAT
        yield Line(row["workload"], f"settling, batch of {row['events']:,} messages", aim, cost, met, beside)


def _stages(result: Row) -> Iterator[Line]:
    rows = {row["workload"]: row for row in result["rows"]}
    for name, row in rows.items():
        ours = row["systems"]["delayline"]
        ratios = row["ratios"]
        what = f"{ours['messages']:,} in {ours['warm_s']} s (cold {ours['cold_s']} s), {ours['per_s']:,}/s"
        measure, aim, met = _stage(name, row["measure"], ours, ratios.get("row-wise", 0))
        what += f"; {ours['parked']:,} of them parked" if row["measure"] == "intake" else ""
        yield Line(name, measure, aim, what, met, _times(ratios))
        if name.startswith("intake"):
            copies = ours["ingest_s"] / row["copy_s"]
            what = f"{ours['ingest_s']} s, {copies:.2f}x"
            beside = f"plain copy {row['copy_s']} s"
            yield Line(name, "ingest against a plain copy of the inbox", "<= 1.7x", what, copies <= 1.7, beside)
    one, many = (rows.get(f"fan-out, {name}") for name in ("1 subscription", "50 subscriptions"))
    if one and many:
        ratio = many["systems"]["delayline"]["warm_s"] / one["systems"]["delayline"]["warm_s"]
        yield Line("fan-out", "50 subscriptions against 1", "<= 3x", f"{ratio:.1f}x", ratio <= 3)


def _stage(name: str, measure: str, ours: Row, ratio: float) -> tuple[str, str, bool | None]:
    """What is measured, its aim, and whether it is met; `ratio` is that to row-wise."""
    count = ours["messages"]
    if measure == "encode":
        met = ours["per_s"] >= MILLION and ratio >= 5
        aim = "10 M at >= 1 M/s, >= 5x row-wise"
        return "from `messages` into the state", aim, met if count >= 10 * MILLION else None
    if measure == "release":
        return "due to last row, lookahead 0", "1 M in <= 5 s", ours["warm_s"] <= 5 if count >= MILLION else None
    if name.startswith("intake"):
        return "ingest + schedule", ">= 5x row-wise", ratio >= 5
    return "ingest + schedule", "", None


def _backlog(result: Row) -> Iterator[Line]:
    """What grows with the messages that wait. The state holds what is due within the horizon, so it is as dense."""
    for row in result["rows"]:
        counts = " / ".join(_short(each["messages"]) for each in row["sizes"])
        for name, ratio in backlog.growth(row).items():
            workload = "dispatch" if name == backlog.RELEASE else row["workload"]
            what = " / ".join(f"{each['figures'][name]:,}" for each in row["sizes"]) + f": {ratio:.2f}x"
            met = None if name == backlog.STATE else ratio <= FLAT
            yield Line(workload, f"{name}, with {counts}", "" if met is None else f"<= {FLAT}x", what, met)


def _day(result: Row) -> Iterator[Line]:
    """A long run. Sizes are judged when it is long enough for logs to be cut more than once in each half."""
    for row in result["rows"]:
        count = len(row["seconds"])
        for name, (first, last) in row["drift"].items():
            times = name == day.INSTANT
            measure, ratio = f"{name}, {count} instants, {day.WHEN[times]}", last / max(first, 0.001)
            met = ratio <= NO_DRIFT if times or count >= LONG else None
            yield Line(row["workload"], measure, f"<= {NO_DRIFT}x", f"{first:,} / {last:,}: {ratio:.2f}x", met)


def _live(result: Row) -> Iterator[Line]:
    rows = result["rows"]
    ours = {row["workload"]: row for row in rows if row["system"] == "delayline"}
    for row in rows:
        mine = ours[row["workload"]]
        if row is not mine:
            yield from _beside(mine, row)
            continue
        yield from _LIVE[row["workload"]](row)
        if "quiet" in row:
            yield _idle(row, [each for each in rows if each is not row and each["workload"] == row["workload"]])


def _steady(row: Row) -> Iterator[Line]:
    late, rate = row["warm"]["late"], f"{row['parameters']['rate']:,} a second"
    yield _lateness(row["workload"], f"lateness, {rate}", late, 500, 1_000)
    first = f"lateness, due in the first {row['parameters']['warm_s']} s of the stream"
    yield _lateness(row["workload"], first, row["cold"]["late"], None, 2_000)
    up = row["started_s"]
    yield Line("start", "from the command to all stages", f"<= {UP_S} s", f"{up:g} s", up <= UP_S)
    yield Line(row["workload"], "inbox to prepared", "", _spread(row["warm"]["to_prepared"]), None)
    p50, p99 = (500, 1_000) if row["parameters"]["rate"] < BUSY else (800, 1_500)
    yield _lateness(row["workload"], f"producer to reader, due at once, {rate}", row["warm"]["at_once"], p50, p99)
    yield _cost(row)
    minutes = [each for each in row["by_minute"] if each["count"] >= 1_000]
    if len(minutes) > 1:
        drift = ", ".join(f"{each['p99'] / 1_000:.2f}" for each in minutes)
        yield Line(row["workload"], "p99 of each minute, s", "no drift", drift, None)
    yield _never_early(row)


def _soon(row: Row) -> Iterator[Line]:
    parameters, warm = row["parameters"], row["warm"]
    delays = f"delays {parameters['low_ms'] / 1_000:g} to {parameters['high_ms'] / 1_000:g} s"
    yield _lateness(row["workload"], f"lateness, {parameters['rate']:,} a second, {delays}", warm["late"], 300, 1_000)
    yield _lateness(row["workload"], "producer to reader, due at once", warm["at_once"], 500, 1_000)
    yield _cost(row)
    yield _never_early(row)


def _cost(row: Row) -> Line:
    """What the run takes of the processors, producer and observer with it. Judged is the cost of few messages."""
    rate, cost = row["parameters"]["rate"], row["run"]["cpu_s_per_minute"]
    met = cost <= FEW_S if rate <= FEW else None
    aim = f"<= {FEW_S} CPU s a minute at {FEW:,} a second"
    return Line(row["workload"], f"CPU, {rate:,} a second", aim, f"{cost} CPU s a minute", met)


def _bulk(row: Row) -> Iterator[Line]:
    after = (row["last_seen_ms"] - row["last_due_ms"]) / 1_000
    ahead = row["parameters"]["profile"]["clock"]["lookahead_ms"] / 1_000
    count, aim = row["parameters"]["bulk"], 1 if ahead else 5
    met = after <= aim if count >= 1_000_000 else None
    what = f"{count:,} in {after:.2f} s"
    yield Line(row["workload"], f"due to last row, live, lookahead {ahead:g} s", f"1 M in <= {aim} s", what, met)
    yield _never_early(row)


def _spread_out(row: Row) -> Iterator[Line]:
    rate = row["parameters"]["bulk"] * 1_000 // row["parameters"]["spread_ms"]
    yield _lateness(row["workload"], f"lateness, {rate:,} due a second", row["warm"]["late"], None, 2_000)
    yield _never_early(row)


def _idle(row: Row, others: Sequence[Row]) -> Line:
    """What a job takes while nothing is due, after the stream of its run; `others` are baselines of that run.

    Maintenance still merges what the stream left. Its commits are told apart: those of the stages are judged.
    """
    quiet, upkeep, cost = row["quiet"], row["quiet"]["upkeep"], "cpu_s_per_minute"
    commits = quiet["commits_end"] - quiet["commits_start"] - upkeep["commits"]
    files = quiet["data_files"] - upkeep["data_files"]
    what = f"{quiet[cost]} CPU s a minute, {commits} commits, {files} data files"
    if upkeep["commits"]:
        what += f"; maintenance: {upkeep['commits']} and {upkeep['data_files']}"
    met = quiet[cost] <= IDLE_S and not commits and not files
    beside = ", ".join(f"{each['system']} {each['quiet'][cost]} CPU s" for each in others)
    aim = f"<= {IDLE_S} CPU s; stages: no commits, no files"
    return Line("idle", f"nothing due for {quiet['seconds']} s", aim, what, met, beside)


def _many(row: Row) -> Iterator[Line]:
    parameters = row["parameters"]
    what = f"lateness, {parameters['topics']:,} topics, {parameters['subscriptions']} subscriptions each"
    yield Line(row["workload"], what, "", _spread(row["warm"]["late"]), None)
    yield _never_early(row)


_LIVE: dict[str, Callable[[Row], Iterator[Line]]] = {
    "steady": _steady,
    "spread": _spread_out,
    "release": _bulk,
    "release-plain": _bulk,
    "many": _many,
    "soon": _soon,
    "maintained": _steady,
    "guarded": _spread_out,
}


def _knee(result: Row) -> Iterator[Line]:
    """The highest rate that was on time. It is judged when a higher one was not, or the aim was reached."""
    rows = result["rows"]
    for row in rows:
        rate, cost = row["parameters"]["rate"], row["run"]["cpu_s_per_minute"]
        what = f"{_spread(row['warm']['late'])}; {cost} CPU s a minute"
        yield Line("knee", f"lateness, {rate:,} a second", "", what, None)
    on_time = [row["parameters"]["rate"] for row in rows if knee.on_time(row)]
    best, enough = max(on_time, default=0), len(on_time) < len(rows) or max(on_time, default=0) >= KNEE
    met = best >= KNEE if enough and len(rows) > 1 else None
    aim = f"p99 <= {knee.LATE_MS / 1_000:g} s at >= {KNEE:,} a second"
    yield Line("knee", "highest rate on time", aim, f"{best:,} a second", met)


def _beside(ours: Row, other: Row) -> Iterator[Line]:
    """Lateness of a baseline under the same load."""
    figures, measure = other["warm"]["late"], f"lateness of {other['system']}"
    if not figures["count"]:
        yield Line(ours["workload"], measure, "", "it delivered nothing in time", None)
        return
    ratio = figures["p99"] / max(1.0, ours["warm"]["late"]["p99"])
    what = f"{_spread(figures)}, missing {other['missing']:,}"
    yield Line(ours["workload"], measure, "", what, None, f"its p99 is {ratio:.1f}x ours")


def _lateness(workload: str, measure: str, late: Mapping[str, float], p50: int | None, p99: int) -> Line:
    aim = f"p99 <= {p99 / 1_000:g} s" if p50 is None else f"p50 <= {p50 / 1_000:g} s, p99 <= {p99 / 1_000:g} s"
    met = bool(late["count"]) and late["p99"] <= p99 and (p50 is None or late["p50"] <= p50)
    return Line(workload, measure, aim, _spread(late), met)


def _never_early(row: Row) -> Line:
    counts = {name: row[name] for name in ("early", "twice", "missing")}
    figures = ", ".join(f"{name} {count}" for name, count in counts.items())
    return Line(row["workload"], "nothing early, twice or missing", "0", figures, not any(counts.values()))


def _spread(figures: Mapping[str, float]) -> str:
    if not figures["count"]:
        return "no rows"
    return ", ".join(f"{name} {figures[name] / 1_000:.2f}" for name in ("p50", "p99", "max")) + " s"


def _times(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{ratio:.1f}x {system}" for system, ratio in ratios.items())


def _short(count: int) -> str:
    return f"{count / MILLION:g} M"


def _kafka(result: Row) -> Iterator[Line]:
    rows = {row["workload"]: row for row in result["rows"]}
    if row := rows.get("way"):
        what = f"p50 {row['p50_s']}, p99 {row['p99_s']} s at {row['rate']:,}/s"
        around = f"around the restart of the broker p99 {row['around_p99_s']} s"
        met = row["p50_s"] <= 0.3 and row["p99_s"] <= 1
        yield Line("kafka", "topic in, topic out, late at a consumer", "p50 <= 0.3 s, p99 <= 1 s", what, met, around)
        counts = {name: row[name] for name in ("lost", "twice", "early")}
        figures = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield Line("kafka", "the broker restarted once", "0", figures, not any(counts.values()))
    if row := rows.get("intake"):
        what = f"{_short(row['records'])} in {row['source_s']} s, {row['per_s']:,}/s: {row['ratio']}x"
        beside = f"plain copy {row['copy_s']} s"
        yield Line("kafka", "intake against a plain copy by Spark", ">= 0.7x", what, row["ratio"] >= 0.7, beside)
    if row := rows.get("release"):
        yield _burst(row)


def _burst(row: Row) -> Line:
    """Judged at a million only."""
    counts = {name: row[name] for name in ("lost", "twice", "disordered")}
    what = f"{_short(row['messages'])} in {row['seconds']} s, {row['per_s']:,}/s"
    met = row["seconds"] <= 10 and not any(counts.values()) if row["messages"] >= MILLION else None
    figures = ", ".join(f"{name} {count}" for name, count in counts.items())
    return Line("kafka", "due at one instant, at a consumer, in order", "1 M <= 10 s", what, met, figures)


def _cluster(result: Row) -> Iterator[Line]:
    """Two executors that share the cores with driver, producer and observer. Only a large batch is judged."""
    rows = {row["kind"]: row for row in result["rows"]}
    if live := rows.get("live"):
        rate = f"{live['parameters']['rate']:,} a second"
        yield _lateness(
            live["workload"], f"lateness, {rate}, {live['executors']} executors", live["warm"]["late"], 500, 1_500
        )
        yield _never_early(live)
    if batch := rows.get("batch"):
        count, (one, more) = batch["parameters"]["messages"], batch["sizes"].values()
        what = f"{one['seconds']} / {more['seconds']} s: {batch['ratio']}x, by processor time {batch['by_cpu']}x"
        serial = "serial: " + ", ".join(f"{part} {fraction:.0%}" for part, fraction in batch["serial"].items())
        met = batch["ratio"] >= SCALES if count >= 5 * MILLION else None
        measure = f"{_short(count)} of one topic, 1 / {batch['parameters']['executors']} executors"
        yield Line(batch["workload"], measure, f">= {SCALES}x at 5 M", what, met, serial)


def _pulsar(result: Row) -> Iterator[Line]:
    rows = {row["system"]: row for row in result["rows"]}
    ours, own = rows["delayline"], rows["Pulsar"]
    late, theirs = ours["late"], own["late"]
    aim, beside = "p50 <= 0.3 s, p99 <= 1 s, no worse than its own", f"its own: {_spread(theirs)}, early {own['early']}"
    met = late["p50"] <= min(300, theirs["p50"]) and late["p99"] <= min(1_000, theirs["p99"])
    rate = f"lateness at a consumer, {ours['parameters']['rate']:,} a second"
    yield Line(ours["workload"], rate, aim, _spread(late), bool(late["count"]) and met, beside)
    yield _never_early(ours)


_LINES: dict[str, Callable[[Row], Iterable[Line]]] = {
    "index": _index,
    "outstanding": _outstanding,
    "stages": _stages,
    "backlog": _backlog,
    "day": _day,
    "steady": _live,
    "live": _live,
    "knee": _knee,
    "consuming": aims_consuming.lines,
    "control": aims_control.lines,
    "commanding": aims_control.commanded,
    "page": aims_page.lines,
    "page-many": aims_page.many,
    "beside": aims_page.beside_job,
    "planner": aims_page.beside_job,
    "forecast": aims_control.foretold,
    "recurring": aims_control.recurring,
    "windows": aims_control.windows,
    "keys": aims_control.keys,
    "turns": aims_control.turns,
    "space": aims_control.freed,
    "cluster": _cluster,
    "kafka": _kafka,
    "pulsar": _pulsar,
}

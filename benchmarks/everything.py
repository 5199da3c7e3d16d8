"""All benchmarks, one after the other, and a report: figures beside aims and baselines of the same run, with plots.

Each benchmark is a process of its own, as `python -m benchmarks.<name> --json`; what it printed is kept beside the
report, so that the report can be made again.
"""

from __future__ import annotations

import argparse
import html
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.machine import describe

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "out"
SHORT = {
    "index": ["--messages", "500000", "--baseline-messages", "200000"],
    "stages": [],
    "live": ["steady", "spread", "release", "release-plain", "idle", "many"],
    "beside": ["steady", "--beside", "polling"],
}
FULL = {
    "index": ["--full"],
    "stages": ["--full"],
    "live": [*SHORT["live"], "--full"],
    "beside": [*SHORT["beside"], "--beside", "row-wise", "--full"],
}
"""What each benchmark is told. `beside` is `live` again, with baselines."""
Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Line:
    """A line of the table; `met` is None where there is only a figure."""

    workload: str
    measure: str
    aim: str
    ours: str
    met: bool | None


def run(name: str, words: list[str], out: Path) -> dict[str, Any]:
    """Run a benchmark; what it gave, also kept in a file. Its words for people go to our standard error.

    Raises:
        SystemExit: it printed no result.
    """
    module = "live" if name == "beside" else name
    begun = time.monotonic()
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-m", f"benchmarks.{module}", *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=False
    )
    lines = done.stdout.decode().splitlines()
    if not lines:
        message = f"benchmarks.{module} {' '.join(words)} ended with {done.returncode} and without a result"
        raise SystemExit(message)
    told: dict[str, Any] = json.loads(lines[-1])
    told |= {"command": " ".join([f"python -m benchmarks.{module}", *words]), "exit": done.returncode}
    told["took_s"] = round(time.monotonic() - begun)
    (out / f"{name}.json").write_text(json.dumps(told), encoding="utf-8")
    return told


def table(results: Results) -> Iterator[Line]:
    """The figures beside the aims, as far as the benchmarks were run."""
    if "stages" in results:
        yield from _stages({row["workload"]: row for row in results["stages"]["rows"]})
    if "live" in results:
        for row in results["live"]["rows"]:
            yield from _LIVE[row["workload"]](row)
    if "beside" in results:
        yield from _beside(results["beside"]["rows"])


def _stages(rows: Mapping[str, Any]) -> Iterator[Line]:
    for name, row in rows.items():
        ours, others = row["systems"]["delayline"], {k: v for k, v in row["systems"].items() if k != "delayline"}
        ratios = ", ".join(f"{ours['per_s'] / other['per_s']:.1f}x {system}" for system, other in others.items())
        what = f"{ours['messages']:,} in {ours['warm_s']} s (cold {ours['cold_s']} s), {ours['per_s']:,}/s: {ratios}"
        if name.startswith("intake"):
            naive = ours["per_s"] / others["row-wise"]["per_s"]
            yield Line(name, "ingest + schedule", ">= 5x row-wise", what, naive >= 5)
            copies = ours["warm_s"] / row["copy_s"]
            yield Line(name, "against a plain copy of the inbox", "<= 1.7x (ingest alone)", f"{copies:.1f}x", None)
        elif name.startswith("release"):
            met = ours["warm_s"] <= 5 if ours["messages"] >= 1_000_000 else None
            yield Line(name, "due to last row, lookahead 0", "1 M in <= 5 s", what, met)
        else:
            yield Line(name, "ingest + schedule", "", what, None)
    one, many = (rows.get(f"fan-out, {name}") for name in ("1 subscription", "50 subscriptions"))
    if one and many:
        ratio = many["systems"]["delayline"]["warm_s"] / one["systems"]["delayline"]["warm_s"]
        yield Line("fan-out", "50 subscriptions against 1", "<= 3x", f"{ratio:.1f}x", ratio <= 3)


def _steady(row: Mapping[str, Any]) -> Iterator[Line]:
    late, rate = row["warm"]["late"], f"{row['parameters']['rate']:,} a second"
    yield _lateness(row["workload"], f"lateness, {rate}", late, 500, 1_000)
    once = row["at_once"]
    yield Line(row["workload"], "producer to reader, due at once", "", _spread(once), None)
    minutes = [each for each in row["by_minute"] if each["count"] >= 1_000]
    if len(minutes) > 1:
        drift = ", ".join(f"{each['p99'] / 1_000:.2f}" for each in minutes)
        yield Line(row["workload"], "p99 of each minute, s", "no drift", drift, None)
    yield _never_early(row)


def _bulk(row: Mapping[str, Any]) -> Iterator[Line]:
    after = (row["last_seen_ms"] - row["last_due_ms"]) / 1_000
    ahead = row["parameters"]["profile"]["clock"]["lookahead_ms"] / 1_000
    count, aim = row["parameters"]["bulk"], 1 if ahead else 5
    met = after <= aim if count >= 1_000_000 else None
    what = f"{count:,} in {after:.2f} s"
    yield Line(row["workload"], f"due to last row, live, lookahead {ahead:g} s", f"1 M in <= {aim} s", what, met)
    yield _never_early(row)


def _spread_out(row: Mapping[str, Any]) -> Iterator[Line]:
    rate = row["parameters"]["bulk"] * 1_000 // row["parameters"]["spread_ms"]
    yield _lateness(row["workload"], f"lateness, {rate:,} due a second", row["warm"]["late"], None, 2_000)
    yield _never_early(row)


def _idle(row: Mapping[str, Any]) -> Iterator[Line]:
    quiet = row["quiet"]
    commits = quiet["commits_end"] - quiet["commits_start"]
    what = f"{quiet['cpu_s_per_minute']} CPU s a minute, {commits} commits, {quiet['data_files']} data files"
    met = quiet["cpu_s_per_minute"] <= 15 and not commits and not quiet["data_files"]
    yield Line(row["workload"], f"nothing due for {quiet['seconds']} s", "<= 15 CPU s, no commits, no files", what, met)


def _many(row: Mapping[str, Any]) -> Iterator[Line]:
    told = row["parameters"]
    what = f"lateness, {told['topics']:,} topics, {told['subscriptions']} subscriptions each"
    yield Line(row["workload"], what, "", _spread(row["warm"]["late"]), None)
    yield _never_early(row)


_LIVE: dict[str, Callable[[Mapping[str, Any]], Iterator[Line]]] = {
    "steady": _steady,
    "spread": _spread_out,
    "release": _bulk,
    "release-plain": _bulk,
    "idle": _idle,
    "many": _many,
}


def _beside(rows: list[Mapping[str, Any]]) -> Iterator[Line]:
    """Lateness of all systems in one run."""
    ours, *others = rows
    for other in others:
        figures = other["warm"]["late"]
        if not figures["count"]:
            yield Line(ours["workload"], f"beside {other['system']}", "", "it delivered nothing in time", None)
            continue
        ratio = figures["p99"] / max(1.0, ours["warm"]["late"]["p99"])
        what = f"{other['system']}: {_spread(figures)}, missing {other['missing']:,}; its p99 is {ratio:.1f}x ours"
        yield Line(ours["workload"], f"beside {other['system']}", "", what, None)


def _lateness(workload: str, measure: str, late: Mapping[str, float], p50: int | None, p99: int) -> Line:
    aim = f"p99 <= {p99 / 1_000:g} s" if p50 is None else f"p50 <= {p50 / 1_000:g} s, p99 <= {p99 / 1_000:g} s"
    met = bool(late["count"]) and late["p99"] <= p99 and (p50 is None or late["p50"] <= p50)
    return Line(workload, measure, aim, _spread(late), met)


def _never_early(row: Mapping[str, Any]) -> Line:
    told = ", ".join(f"{name} {row[name]}" for name in ("early", "twice", "missing"))
    return Line(row["workload"], "nothing early, twice or missing", "0", told, not (row["early"] or row["twice"]))


def _spread(figures: Mapping[str, float]) -> str:
    if not figures["count"]:
        return "no rows"
    return ", ".join(f"{name} {figures[name] / 1_000:.2f}" for name in ("p50", "p99", "max")) + " s"


def show(lines: list[Line]) -> Iterator[str]:
    """The table for a terminal."""
    for line in lines:
        mark = {True: "met", False: "NOT MET", None: ""}[line.met]
        yield f"{line.workload:28}{line.measure:44}{line.aim:34}{mark:9}{line.ours}"


def page(lines: list[Line], results: Results, machine: Mapping[str, Any], plots: list[str]) -> str:
    """The report as HTML."""
    head = "".join(f"<th>{name}</th>" for name in ("workload", "measure", "aim", "", "ours"))
    marks = {True: "met", False: "<b>not met</b>", None: ""}
    body = "".join(
        f"<tr><td>{html.escape(each.workload)}<td>{html.escape(each.measure)}<td>{html.escape(each.aim)}"
        f"<td>{marks[each.met]}<td>{html.escape(each.ours)}</tr>"
        for each in lines
    )
    commands = "".join(
        f"<li><code>{html.escape(each['command'])}</code>, {each['took_s']} s" for each in results.values()
    )
    told = ", ".join(f"{key} {value}" for key, value in machine.items())
    pictures = "".join(f'<p><img src="{name}" alt="{name}">' for name in plots)
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:.3em .8em;text-align:left;border-bottom:1px solid #ccc}"
    return (
        f"<!doctype html><meta charset=utf-8><title>delayline benchmarks</title><style>{style}</style>"
        f"<h1>delayline benchmarks</h1><p>{html.escape(told)}<table><tr>{head}</tr>{body}</table>"
        f"{pictures}<h2>Commands</h2><ul>{commands}</ul>"
    )


def draw(results: Results, out: Path) -> list[str]:
    """Plots of the results; their names."""
    mpl.use("Agg")
    names = []
    if "stages" in results:
        rows = results["stages"]["rows"]
        figure, axes = plt.subplots(figsize=(9, 4))
        for place, system in enumerate(rows[0]["systems"]):
            rates = [row["systems"][system]["per_s"] for row in rows]
            axes.bar([number + place * 0.27 for number in range(len(rows))], rates, 0.25, label=system)
        axes.set_xticks([number + 0.27 for number in range(len(rows))], [row["workload"] for row in rows])
        axes.set_yscale("log")
        axes.set_ylabel("messages a second")
        names.append(_saved(figure, axes, out / "stages.png"))
    late = [row for name in ("live", "beside") for row in results.get(name, {}).get("rows", ()) if row.get("by_minute")]
    if late:
        figure, axes = plt.subplots(figsize=(9, 4))
        shown = {(row["workload"], row["system"]): row for row in late}
        for (workload, system), row in shown.items():
            minutes = [each for each in row["by_minute"] if each["count"]]
            label = workload if system == "delayline" else f"{workload}, {system}"
            axes.plot(
                [each["minute"] for each in minutes], [each["p99"] / 1_000 for each in minutes], "o-", label=label
            )
        axes.set_xlabel("minute of the run (the first one is cold)")
        axes.set_ylabel("p99 of lateness, s")
        axes.set_yscale("log")
        names.append(_saved(figure, axes, out / "lateness.png"))
    return names


def _saved(figure: Any, axes: Any, path: Path) -> str:  # noqa: ANN401 - matplotlib's
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path.name


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 when something came early, twice or not at all, or a job did not end well."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.everything", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--full", action="store_true", help="the full sizes; hours")
    parser.add_argument("--only", action="append", default=[], choices=[*SHORT], help="some of the benchmarks")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of results and report")
    parser.add_argument("--report", action="store_true", help="run nothing: make the report from what is in the folder")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args(arguments)
    told.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for name, words in (FULL if told.full else SHORT).items():
        kept = told.out / f"{name}.json"
        if told.report:
            results |= {name: json.loads(kept.read_text(encoding="utf-8"))} if kept.exists() else {}
        elif not told.only or name in told.only:
            sys.stderr.write(f"benchmarks.{name} {' '.join(words)}\n")
            results[name] = run(name, words, told.out)
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    lines = list(table(results))
    (told.out / "report.html").write_text(page(lines, results, machine, draw(results, told.out)), encoding="utf-8")
    if told.json:
        print(json.dumps({"machine": machine, "lines": [vars(line) for line in lines], "results": results}))
    else:
        print("machine:", ", ".join(f"{key} {value}" for key, value in machine.items()))
        print("\n".join(show(lines)))
        print(f"report: {told.out / 'report.html'}")
    return int(any(each["exit"] for name, each in results.items() if name != "beside"))


if __name__ == "__main__":
    sys.exit(main())

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.aims import Results, table
from benchmarks.plots import draw
from benchmarks.support import ROOT
from benchmarks.support.lines import Line
from benchmarks.support.machine import describe
from benchmarks.support.report import machine_line

OUT = ROOT / "benchmarks" / "out"
MODULES = {"steady": "live", "page-many": "page", "planner": "beside"}
"""Which module runs a benchmark, where it is not of the same name."""
SHORT = {
    "index": ["--messages", "300000", "--baseline-messages", "100000"],
    "outstanding": [],
    "stages": [],
    "backlog": [],
    "day": [],
    "steady": ["steady", "--beside", "polling"],
    "live": ["spread", "release", "many", "soon", "guarded"],
    "knee": ["--rates", "10000", "--seconds", "45"],
    "consuming": [],
    "control": [],
    "commanding": ["--messages", "200000"],
    "page": ["--messages", "1000000"],
    "page-many": ["--subscriptions", "1000"],
    "beside": ["--rounds", "1", "--parked", "100000", "--seconds", "45"],
    "planner": ["--with", "planner", "--schedules", "2000", "--rounds", "1", "--parked", "100000", "--seconds", "45"],
    "forecast": ["--messages", "200000"],
    "recurring": ["--schedules", "10000"],
    "windows": ["--messages", "200000", "--rounds", "2"],
    "keys": ["--waiting", "1000000", "--messages", "50000", "--rounds", "3", "--seconds", "900"],
    "turns": ["--messages", "200000"],
    "space": [],
    "cluster": [],
    "kafka": [],
    "pulsar": [],
}
FULL = {name: [*words, "--full"] for name, words in SHORT.items()} | {
    "index": ["--full"],
    "outstanding": [],
    "commanding": [],
    "page": ["--messages", "10000000", "--messages", "100000000"],
    "page-many": ["--subscriptions", "5000"],
    "beside": [],
    "planner": ["--with", "planner"],
    "forecast": ["--messages", "100000000"],
    "recurring": [],
    "windows": [],
    "keys": [],
    "turns": [],
    "steady": [*SHORT["steady"], "--beside", "row-wise", "--full"],
    "live": [*SHORT["live"], "release-plain", "maintained", "--full"],
    "knee": [],
}
"""What each benchmark is told. The sizes stand in the files of workloads."""


def run(name: str, words: list[str], out: Path) -> dict[str, Any]:
    """Run a benchmark; what it gave, also kept in a file. Its words for people go to our standard error.

    Raises:
        SystemExit: it printed no result.
    """
    module = MODULES.get(name, name)
    begun = time.monotonic()
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-m", f"benchmarks.{module}", *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=False
    )
    lines = done.stdout.decode().splitlines()
    if not lines:
        message = f"benchmarks.{module} {' '.join(words)} ended with {done.returncode} and without a result"
        raise SystemExit(message)
    result: dict[str, Any] = json.loads(lines[-1])
    result |= {"command": " ".join([f"python -m benchmarks.{module}", *words]), "exit": done.returncode}
    result["took_s"] = round(time.monotonic() - begun)
    (out / f"{name}.json").write_text(json.dumps(result), encoding="utf-8")
    return result


def show(lines: list[Line]) -> Iterator[str]:
    """The table for a terminal."""
    widths = [
        max((len(getattr(line, name)) for line in lines), default=0) + 2 for name in ("workload", "measure", "aim")
    ]
    for line in lines:
        mark = {True: "met", False: "NOT MET", None: ""}[line.met]
        columns = zip((line.workload, line.measure, line.aim), widths, strict=True)
        beside = f"  [{line.beside}]" if line.beside else ""
        yield "".join(f"{text:{width}}" for text, width in columns) + f"{mark:9}{line.ours}{beside}"


def page(lines: list[Line], results: Results, machine: Mapping[str, Any], plots: list[str]) -> str:
    """The report as HTML."""
    head = "".join(f"<th>{name}</th>" for name in ("workload", "measure", "aim", "", "ours", "beside baselines"))
    marks = {True: "met", False: "<b>not met</b>", None: ""}
    body = "".join(
        f"<tr><td>{html.escape(each.workload)}<td>{html.escape(each.measure)}<td>{html.escape(each.aim)}"
        f"<td>{marks[each.met]}<td>{html.escape(each.ours)}<td>{html.escape(each.beside)}</tr>"
        for each in lines
    )
    commands = "".join(
        f"<li><code>{html.escape(each['command'])}</code>, {each['took_s']} s" for each in results.values()
    )
    parts = ", ".join(f"{key} {value}" for key, value in machine.items())
    pictures = "".join(f'<p><img src="{name}" alt="{name}">' for name in plots)
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:.3em .8em;text-align:left;border-bottom:1px solid #ccc}"
    return (
        f"<!doctype html><meta charset=utf-8><title>delayline benchmarks</title><style>{style}</style>"
        f"<h1>delayline benchmarks</h1><p>{html.escape(parts)}<table><tr>{head}</tr>{body}</table>"
        f"{pictures}<h2>Commands</h2><ul>{commands}</ul>"
    )


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
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for name, words in (FULL if options.full else SHORT).items():
        kept = options.out / f"{name}.json"
        if options.report:
            results |= {name: json.loads(kept.read_text(encoding="utf-8"))} if kept.exists() else {}
        elif not options.only or name in options.only:
            sys.stderr.write(f"benchmarks.{name} {' '.join(words)}\n")
            results[name] = run(name, words, options.out)
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    lines = list(table(results))
    report = page(lines, results, machine, draw(results, options.out))
    (options.out / "report.html").write_text(report, encoding="utf-8")
    if options.json:
        print(json.dumps({"machine": machine, "lines": [vars(line) for line in lines], "results": results}))
    else:
        print(machine_line(machine))
        print("\n".join(show(lines)))
        print(f"report: {options.out / 'report.html'}")
    return int(any(each["exit"] for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())

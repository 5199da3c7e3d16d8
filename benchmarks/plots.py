"""Plots of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.aims import Results
from benchmarks.day import COUNTED

SHAPE = (9, 4)


def draw(results: Results, out: Path) -> list[str]:
    """Plots of the results; their names."""
    mpl.use("Agg")
    return [name for name, plot in _PLOTS.items() if plot(results, out / name)]


def _stages(results: Results, path: Path) -> bool:
    """Messages a second in each workload, by system; whether there is anything to show."""
    rows = results.get("stages", {}).get("rows", ())
    if rows:
        figure, axes = plt.subplots(figsize=SHAPE)
        for place, system in enumerate(rows[0]["systems"]):
            found = [(number, row["systems"][system]) for number, row in enumerate(rows) if system in row["systems"]]
            heights = [told["per_s"] for _, told in found]
            axes.bar([number + place * 0.27 for number, _ in found], heights, 0.25, label=system)
        axes.set_xticks([number + 0.27 for number in range(len(rows))], [row["workload"] for row in rows])
        axes.tick_params(axis="x", labelrotation=15)
        axes.set_yscale("log")
        axes.set_ylabel("messages a second")
        _save(figure, axes, path)
    return bool(rows)


def _lateness(results: Results, path: Path) -> bool:
    """Lateness by minute of the run."""
    rows = [row for name in ("steady", "live") for row in results.get(name, {}).get("rows", ()) if row.get("by_minute")]
    if rows:
        figure, axes = plt.subplots(figsize=SHAPE)
        for row in rows:
            minutes = [each for each in row["by_minute"] if each["count"]]
            label = row["workload"] if row["system"] == "delayline" else f"{row['workload']}, {row['system']}"
            late = [each["p99"] / 1_000 for each in minutes]
            axes.plot([each["minute"] for each in minutes], late, "o-", label=label)
        axes.set_xlabel("minute of the run (the first one is cold)")
        axes.set_ylabel("p99 of lateness, s")
        axes.set_yscale("log")
        _save(figure, axes, path)
    return bool(rows)


def _backlog(results: Results, path: Path) -> bool:
    """Each figure by the number of messages that wait, as a multiple of the first."""
    rows = results.get("backlog", {}).get("rows", ())
    if rows:
        figure, axes = plt.subplots(figsize=SHAPE)
        for row in rows:
            counts, first = [each["messages"] for each in row["sizes"]], row["sizes"][0]["figures"]
            for name in first:
                values = [each["figures"][name] / max(first[name], 0.001) for each in row["sizes"]]
                axes.plot(counts, values, "o-", label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("messages that wait")
        axes.set_ylabel("figure, first = 1")
        _save(figure, axes, path)
    return bool(rows)


def _day(results: Results, path: Path) -> bool:
    """Time of each instant, and the files and log entries of all tables, over a long run."""
    rows = results.get("day", {}).get("rows", ())
    if rows:
        figure, axes = plt.subplots(figsize=SHAPE)
        other = axes.twinx()
        for row in rows:
            axes.plot(range(1, len(row["seconds"]) + 1), row["seconds"], label="an instant, s")
            instants = [each["instant"] for each in row["rounds"]]
            for name in COUNTED:
                other.plot(instants, [sum(each["extent"][name].values()) for each in row["rounds"]], "o--", label=name)
        axes.set_xlabel("instant")
        axes.set_ylabel("s")
        other.legend(loc="lower right")
        _save(figure, axes, path)
    return bool(rows)


def _save(figure: Any, axes: Any, path: Path) -> None:  # noqa: ANN401 - matplotlib's
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


_PLOTS: dict[str, Callable[[Results, Path], bool]] = {
    "stages.png": _stages,
    "lateness.png": _lateness,
    "backlog.png": _backlog,
    "day.png": _day,
}

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
            heights = [figures["per_s"] for _, figures in found]
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


def _beside(results: Results, path: Path) -> bool:
    """Lateness under steady load, warm, of each system: the picture of README."""
    found = [
        (f"{row['system']}, {what}", row["warm"][kind])
        for kind, what in (("late", "delayed"), ("at_once", "due at once"))
        for row in results.get("steady", {}).get("rows", ())
        if row["warm"].get(kind, {}).get("count")
    ]
    if found:
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "delayline"})
        figure, axes = plt.subplots(figsize=(8, 3))
        for shift, name, colour in ((-0.2, "p50", "#7fb3d5"), (0.2, "p99", "#1f618d")):
            late = [figures[name] / 1_000 for _, figures in found]
            bars = axes.barh([place + shift for place in range(len(found))], late, 0.38, label=name, color=colour)
            axes.bar_label(bars, fmt="%.2f s", padding=3)
        axes.set_yticks(range(len(found)), [name for name, _ in found])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(0.01, 40)
        axes.set_xlabel("seconds from due to visible")
        _save(figure, axes, path)
    return bool(found)


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
    # Without a date the same figures make the same bytes.
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


_PLOTS: dict[str, Callable[[Results, Path], bool]] = {
    "stages.png": _stages,
    "lateness.png": _lateness,
    "lateness.svg": _beside,
    "backlog.png": _backlog,
    "day.png": _day,
}

"""What a run of the live benchmark gave, as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SPREAD = ("count", "p50", "p99", "p999", "max")


def show(row: Mapping[str, Any]) -> Iterator[str]:
    """Parameters and figures of one run."""
    yield f"\n{row['workload']}, {row['system']}"
    parameters = {key: value for key, value in row["parameters"].items() if key not in ("name", "profile") and value}
    yield "  " + ", ".join(
        f"{key} {value}" for key, value in (parameters | _flat(row["parameters"]["profile"])).items()
    )
    yield (
        f"  delivered {row['count']:,}  missing {row['missing']:,}  twice {row['twice']:,}  early {row['early']:,}  "
        f"up after {row['started_s']} s  job ended with {row['job_exit']}"
    )
    if row["count"]:
        yield from _lateness(row)
    spent = ", ".join(f"{name} {_ms(step)}" for name, step in row["way"].items() if step["count"])
    if spent:
        yield f"  due at once, ms (p50 / p99): {spent}"
    yield f"  run    {_used(row['run'])}"
    if "quiet" in row:
        upkeep = row["quiet"]["upkeep"]
        yield f"  quiet  {_used(row['quiet'])}"
        yield f"         of these by maintenance: {upkeep['commits']} commits, {upkeep['data_files']} data files"


def _lateness(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {'seconds':24}{'rows':>11}{'p50':>9}{'p99':>9}{'p99.9':>9}{'max':>9}"
    for phase in ("cold", "warm"):
        yield from _spread(f"{phase}, late", row[phase]["late"])
        yield from _spread(f"{phase}, after deliver_at", row[phase]["after_deliver_at"])
        yield from _spread(f"{phase}, inbox to prepared", row[phase]["to_prepared"])
        yield from _spread(f"{phase}, due at once", row[phase]["at_once"])
    for each in row["by_minute"]:
        yield from _spread(f"minute {each['minute']}, late", each)
    for each in row["at_once_by_minute"]:
        yield from _spread(f"minute {each['minute']}, due at once", each)
    if "intake_done_before_due_s" in row:
        yield f"  the bulk was in `messages` {row['intake_done_before_due_s']} s before it was due"
    yield (
        f"  last row visible {(row['last_seen_ms'] - row['last_due_ms']) / 1_000:.2f} s after the last was due; "
        f"{row['versions']} versions; {row['most_in_a_second']:,} rows in the busiest second; "
        f"longest pause of the observer {row['longest_pause_ms']} ms"
    )


def _spread(name: str, figures: Mapping[str, float]) -> Iterator[str]:
    if figures["count"]:
        values = "".join(f"{figures[key] / 1_000:>9.2f}" for key in _SPREAD[1:])
        yield f"  {name:24}{figures['count']:>11,}{values}"


def _ms(step: Mapping[str, float]) -> str:
    return f"{step['p50']} / {step['p99']}"


def _used(row: Mapping[str, Any]) -> str:
    changed = ", ".join(f"{name} {count}" for name, count in row["commits"].items() if count)
    return (
        f"{row['seconds']} s: {row['cpu_s_per_minute']} CPU s a minute, {row['resident_mb']:,} MB resident, "
        f"commits {row['commits_start']} to {row['commits_end']} ({changed or 'none'}), "
        f"{row['data_files']} data files, {row['checkpoint_files']} checkpoint files more"
    )


def _flat(profile: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, values in profile.items() for key, value in values.items()}

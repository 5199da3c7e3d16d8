"""What is aimed at for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.support.lines import Line

MILLION = 1_000_000
_SECONDS = {"first overview": 2.0, "further overview": 0.3, "search by key": 1.0, "history of a message": 0.5}
_MEMORY_MB = 300
_ANEW = "counted anew"


def lines(result: Mapping[str, Any]) -> Iterator[Line]:
    """The page beside no job. Judged are ten million messages that wait."""
    rows = {row["what"]: row for row in result["rows"]}
    count = rows["memory"]["messages"]
    is_judged = count >= 10 * MILLION
    anew = f"counted anew: {rows[_ANEW]['seconds']:.2f} s"
    for what, most in _SECONDS.items():
        seconds = rows[what]["seconds"]
        ours, met = f"{seconds:.2f} s with {count / MILLION:g} M", seconds <= most and rows[what]["messages"] > 0
        beside = anew if what == "further overview" else ""
        yield Line("page", what, f"<= {most:g} s", ours, met if is_judged or not met else None, beside)
    megabytes = rows["memory"]["mb"]
    met = megabytes <= _MEMORY_MB
    yield Line("page", "memory", f"<= {_MEMORY_MB} MB", f"{megabytes:.0f} MB", met if is_judged or not met else None)

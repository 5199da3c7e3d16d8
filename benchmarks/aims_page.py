"""What is aimed at for the page, alone and with many subscriptions, and for what is beside a job: a page, a planner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import beside
from benchmarks.support.lines import Line

MILLION = 1_000_000
_FIRST, _AGAIN, _MEMORY = "first overview", "further overview", "memory"
_SEARCHES_S = {"search by key": 1.0, "history of a message": 0.5}
_SIZES = ((100 * MILLION, 5.0, 0.5, 500), (10 * MILLION, 2.0, 0.3, 300))
"""From so many messages on: the first overview and a further one, s, and the memory, MB."""
_MANY, _MANY_S = 5_000, 0.5
_SLOWER, _ROUNDS = 1.05, 3
_ANEW = "counted anew"


def lines(result: Mapping[str, Any]) -> Iterator[Line]:
    """The page beside no job. Judged are ten million messages that wait, or more."""
    sizes = dict.fromkeys(row["pending"] for row in result["rows"])
    for size in sizes:
        yield from _lines({row["what"]: row for row in result["rows"] if row["pending"] == size}, size)


def _lines(rows: Mapping[str, Mapping[str, Any]], size: int) -> Iterator[Line]:
    is_judged = size >= 10 * MILLION
    first, again, most_mb = _limits(size)
    anew = f"counted anew: {rows[_ANEW]['seconds']:.2f} s"
    for what, most in {_FIRST: first, _AGAIN: again, **_SEARCHES_S}.items():
        seconds = rows[what]["seconds"]
        ours, met = f"{seconds:.2f} s with {size / MILLION:g} M", seconds <= most and rows[what]["messages"] > 0
        near = anew if what == _AGAIN else ""
        yield Line("page", what, f"<= {most:g} s", ours, met if is_judged or not met else None, near)
    megabytes = rows[_MEMORY]["mb"]
    ours, met = f"{megabytes:.0f} MB with {size / MILLION:g} M", megabytes <= most_mb
    yield Line("page", _MEMORY, f"<= {most_mb} MB", ours, met if is_judged or not met else None)


def many(result: Mapping[str, Any]) -> Iterator[Line]:
    """Screens with many subscriptions, as a browser asks for them. Judged are five thousand."""
    for row in result["rows"]:
        if row["what"] in (_FIRST, _MEMORY):
            continue
        count, seconds = row["subscriptions"], row["seconds"]
        ours, met = f"{seconds:.2f} s with {count:,}", seconds <= _MANY_S
        judged = met if count >= _MANY or not met else None
        yield Line("page, many subscriptions", row["what"], f"<= {_MANY_S} s", ours, judged)


def beside_job(result: Mapping[str, Any]) -> Iterator[Line]:
    """How late deliveries are with something beside a job, by how late they are without it, and how the page did.

    Judged are three rounds, and ten million messages that wait, or more.
    """
    late: dict[str, list[float]] = {}
    for row in result["rows"]:
        late.setdefault(row["what"], []).append(row["p99_ms"])
    (company,) = late.keys() - {beside.PLAIN}
    workload = f"1,000 messages a second {company}"
    without, with_it = median(late[beside.PLAIN]), median(late[company])
    ratio = with_it / max(without, 0.1)
    ours = f"{without:.1f} ms without, {with_it:.1f} ms with: {ratio:.2f}x"
    met = ratio <= _SLOWER if len(late[company]) >= _ROUNDS else None
    runs = ", ".join(f"{name} {_listed(each)}" for name, each in late.items())
    yield Line(workload, "lateness p99", f"<= {_SLOWER:g}x", ours, met, runs)
    paged = [row for row in result["rows"] if "refresh_p50_s" in row]
    if paged:
        yield from _page_beside(workload, paged)


def _page_beside(workload: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """What the page takes beside a job, the middle one of the runs."""
    size = rows[0]["parked"]
    first, again, most_mb = _limits(size)
    for what, name, most, unit in (
        (_FIRST, "first_look_s", first, "s"),
        (_AGAIN, "refresh_p50_s", again, "s"),
        (_MEMORY, "page_mb", most_mb, "MB"),
    ):
        figure = median(row[name] for row in rows)
        longest = f"at most {max(row['refresh_max_s'] for row in rows):.2f} s" if what == _AGAIN else ""
        ours, met = f"{figure:.3g} {unit} with {size / MILLION:g} M", figure <= most
        judged = met if size >= 10 * MILLION or not met else None
        yield Line(workload, what, f"<= {most:g} {unit}", ours, judged, longest)


def _limits(size: int) -> tuple[float, float, int]:
    """The most that a first overview and a further one may take, s, and the memory, MB, with so many that wait."""
    return next((limits[1:] for limits in _SIZES if size >= limits[0]), _SIZES[-1][1:])


def _listed(figures: Sequence[float]) -> str:
    return " / ".join(f"{each:.1f}" for each in figures)

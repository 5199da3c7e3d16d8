"""The benchmark of a cluster, and the model of scale beside the tables of its page. No Spark runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the workloads are sent by delta-rs")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from benchmarks import aims
from benchmarks.cluster import PARTS, amdahl, load, scaled, show
from benchmarks.scale import COSTS, MESSAGE_BYTES, Plan, Waiting, main
from pipeline.config.profiles import read_profile
from pipeline.config.settings import DAY_MS, HOUR_MS, MINUTE_MS
from pipeline.delta.deltars import open_table
from pipeline.delta.properties import segment_ms_of
from schemas import SEGMENTS
from tests.support.invoked import invoke
from tests.support.modules import ROOT
from tests.support.pages import span_of

PAGE = ROOT / "docs" / "scale.md"
WAITING, BATCH = 1.5, 1.5
"""By such factors predictions may be wrong, either way; docs/scale.md says so."""


def size(seconds: float) -> dict[str, Any]:
    """What a batch gave, each part as slow as the others."""
    spent = {"seconds": seconds, "driver_cpu_s": 0.5, "nodes_cpu_s": 4.0, "busiest_cpu_s": 2.0}
    return {"parts": dict.fromkeys(PARTS, spent), "seconds": 4 * seconds, "driver": {"JVM, MB": 900}}


def compared(one: float, two: float, messages: int = 5_000_000) -> dict[str, Any]:
    """The row of a batch."""
    _, _, batch = load(full=True)
    sizes = {"1": size(one), "2": size(two)}
    parameters = vars(batch) | {"messages": messages}
    return {"workload": "cluster, batch", "kind": "batch", "parameters": parameters, "sizes": sizes} | scaled(sizes)


@pytest.mark.parametrize(
    ("one", "more", "executors", "serial"),
    [(10, 5, 2, 0.0), (10, 10, 2, 1.0), (10, 6, 2, 0.2), (10, 4, 4, 0.2), (10, 4.9, 2, 0.0), (10, 12, 2, 1.0)],
)
def test_what_is_serial_follows_from_two_times(one: float, more: float, executors: int, serial: float) -> None:
    """t(n) = serial + parallel / n. Noise may make it faster than twice, or slower than once."""
    assert amdahl(one, more, executors) == serial


@pytest.mark.parametrize(
    ("two", "messages", "met"), [(6.0, 5_000_000, True), (7.0, 5_000_000, False), (7.0, 1_000_000, None)]
)
def test_a_large_batch_is_judged_by_how_much_faster_two_executors_are(two: float, messages: int, met: object) -> None:
    """With few messages the fixed part of a batch is most of it."""
    row = compared(10.0, two, messages)
    (line,) = aims.table({"cluster": {"rows": [row]}})
    assert line.met is met
    assert "1.67x" in line.ours or two == 7.0
    text = "\n".join(show(row))
    assert "2 executors, busiest_cpu_s" in text
    assert f"{row['ratio']}x" in text


@pytest.mark.parametrize(("p99", "twice", "met"), [(1_499, 0, [True, True]), (1_501, 1, [False, False])])
def test_the_live_load_is_judged_by_its_lateness_and_by_what_came_twice(p99: int, twice: int, met: list[bool]) -> None:
    """On executors that share two cores with everything else."""
    late = {"count": 9, "p50": 400, "p99": p99, "max": p99}
    row = {"kind": "live", "workload": "cluster, live", "executors": 2, "parameters": {"rate": 2_000}}
    row |= {"warm": {"late": late}, "early": 0, "twice": twice, "missing": 0}
    lines = list(aims.table({"cluster": {"rows": [row]}}))
    assert [line.met for line in lines] == met
    assert "2 executors" in lines[0].measure


def table(name: str) -> Iterator[list[str]]:
    """The cells of the rows of a table of the page, below a comment with its name."""
    text = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name} -->")[2]
    for line in text.partition("\n\n")[2].splitlines():
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def close(predicted: float, measured: float, factor: float) -> bool:
    """Whether a prediction is good enough."""
    return measured / factor <= predicted <= measured * factor


def test_what_waits_costs_what_the_model_says() -> None:
    """At 1, 10 and 100 million messages, by the table that was measured."""
    (_, *heads), _, *rows = table("waiting")
    models = [Waiting(int(head.replace(",", "")), 30 * DAY_MS, 5 * MINUTE_MS, HOUR_MS).figures for head in heads]
    assert {name for name, *_ in rows} == set(models[0])
    assert len(models) == 3
    wrong = [
        (name, cell, model[name])
        for name, *cells in rows
        for cell, model in zip(cells, models, strict=True)
        if not close(model[name], float(cell.replace(",", "")), WAITING)
    ]
    assert wrong == []


def test_a_batch_takes_what_the_model_says() -> None:
    """Each part with one executor and with two, by the table that was measured."""
    (_, _, *heads), _, *rows = table("batch")
    assert heads == [*COSTS]
    assert {executors for _, executors, *_ in rows} == {"1", "2"}
    wrong = [
        (messages, executors, part, cell)
        for messages, executors, *cells in rows
        for part, cell in zip(heads, cells, strict=True)
        if not close(COSTS[part].seconds(int(messages.replace(",", "")), int(executors)), float(cell), BATCH)
    ]
    assert wrong == []


def test_the_plan_of_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten billion pending and a million a second; a constant that changes has to change the page."""
    main([])
    assert capsys.readouterr().out in PAGE.read_text(encoding="utf-8")


def test_more_executors_bear_a_higher_rate_until_something_else_ends() -> None:
    """The first thing that ends is the least of the limits."""
    small, large = Plan(10**9, 100_000, 4).limits, Plan(10**9, 100_000, 96).limits
    assert all(small[name] <= large[name] for name in small)
    assert min(small, key=small.__getitem__) != min(large, key=large.__getitem__)


def limits(profile: Path, *lines: str) -> dict[str, float]:
    """What ends first, as the command prints it of a profile."""
    profile.write_text("\n".join(lines), encoding="utf-8")
    plan = Plan(10**10, 10**6, 96, stated=read_profile(profile))
    return plan.limits


def test_what_the_page_says_to_state_moves_the_end_that_it_is_said_of(tmp_path: Path) -> None:
    """A larger batch of ingest bears the load, and a longer lookahead leaves the executors as what ends."""
    profile = tmp_path / "profile.toml"
    batch, sorting, executors, lookahead = chosen = limits(profile)
    size, ahead = (span_of("scale.md", each).partition(".") for each in ("settings.max_bytes", "clock.lookahead_ms"))
    assert chosen[batch] < 10**6
    larger = limits(profile, f"[{size[0]}]", f"{size[2]} = {3 * 10**6 * MESSAGE_BYTES}")
    assert larger[batch] > 10**6
    assert min(larger, key=larger.__getitem__) == sorting
    longer = limits(profile, f"[{ahead[0]}]", f"{ahead[2]} = 60_000")
    assert longer[lookahead] > 1.2 * chosen[lookahead]
    assert longer[executors] == chosen[executors]


def test_longer_segments_are_so_many_fewer_numbers(tmp_path: Path) -> None:
    """As the page counts them: a month in segments of a second. They are chosen when a warehouse is made."""
    words, month = span_of("scale.md", "delayline init").split(), 30 * DAY_MS
    for spelled, numbers in (("1s", 2_592_000), ("1m", 43_200)):
        root = str(tmp_path / spelled)
        made = invoke([*words[1:], spelled, "--rate", "1000000", "--warehouse", root])
        assert made.exit_code == 0, made.output
        segment_ms = segment_ms_of(open_table(root, SEGMENTS).metadata().configuration)
        assert Waiting(10**10, month, segment_ms, month).keys == numbers + 1

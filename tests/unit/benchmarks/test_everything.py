"""The table and the report over all benchmarks, from results that were kept."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")
pytest.importorskip("matplotlib", reason="the report has plots")

from benchmarks import aims, backlog, day, everything, knee
from benchmarks.stages import load
from benchmarks.support.load import Workload, workloads
from tests.support.modules import ROOT


def late(p50: float, p99: float, count: int = 5_000) -> dict[str, float]:
    """Lateness, ms."""
    return {"count": count, "p50": p50, "p99": p99, "p999": p99, "max": p99 + 1}


def live(name: str, system: str = "delayline", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - values of any kind
    """A run of the live benchmark that went well."""
    workload = workloads(full=True)[name]
    quiet: dict[str, Any] = {
        "seconds": 60.0,
        "cpu_s_per_minute": 4.0,
        "commits_start": 9,
        "commits_end": 9,
        "data_files": 0,
    }
    quiet["upkeep"] = {"commits": 0, "data_files": 0}
    row = {
        "parameters": vars(workload), "workload": name, "system": system, "early": 0, "twice": 0, "missing": 0,
        "warm": {"late": late(70, 180), "to_prepared": late(900, 2_000), "at_once": late(400, 900)}, "quiet": quiet,
        "by_minute": [{"minute": number, **late(60, 150 + number)} for number in range(3)],
        "last_seen_ms": 5_900, "last_due_ms": 5_000, "cold": {"late": late(90, 1_900)}, "started_s": 9.5,
        "run": {"cpu_s_per_minute": 70.0}, "way": {},
    }  # fmt: skip
    return row | changes


def stages(seconds: float, encoded_s: float = 9.0) -> dict[str, Any]:
    """Results of the benchmark of the stages: ours ten times as fast as the others."""

    def system(count: int, took: float) -> dict[str, Any]:
        times = {"warm_s": took, "cold_s": took, "ingest_s": took, "per_s": round(count / took)}
        return {"messages": count, "parked": 3, "commits": 1} | times

    names = {"delayline": 1.0, "row-wise": 10.0, "polling": 10.0}
    rows = []
    for each in load():
        took = encoded_s if each.measure == "encode" else seconds
        systems = {name: system(each.full, took * slower) for name, slower in names.items()}
        ratios = {name: slower for name, slower in names.items() if name != "delayline"}
        rows.append(
            {"workload": each.name, "measure": each.measure, "copy_s": 2.5, "systems": systems, "ratios": ratios}
        )
    return {"rows": rows}


def waiting(largest: float) -> dict[str, Any]:
    """Results with messages that wait: all figures grow so much from the fewest to the most."""
    names = (*backlog.TIMES, "JVM, MB", "Python driver, MB", "Python workers, MB", backlog.STATE)
    sizes = [
        {"messages": count, "figures": dict.fromkeys(names, figure)}
        for count, figure in ((1_000_000, 1.0), (100_000_000, largest))
    ]
    return {"rows": [{"workload": "parked", "sizes": sizes}]}


def long_run(end: float) -> dict[str, Any]:
    """Results of a long run in which everything is so much more at the end."""
    counts = [{name: {"messages": 10 * times} for name in day.COUNTED} for times in (1.0, end)]
    rounds = [{"instant": 4 * (n + 1), "extent": extent, "memory_mb": {"JVM": 9}} for n, extent in enumerate(counts)]
    row = {"workload": "a day", "rounds": rounds, "seconds": [1.0] * 144 + [end] * 144}
    return {"rows": [row | day.verdict(row, 0)]}


def index(live: float) -> dict[str, Any]:
    """Results of the index: so many bytes a message."""
    ours = {"messages": 10_000_000, "live": live, "add": 9.0, "drain": 19.0}
    other = {"name": "heap", "resident": 25.0, "add": 1.0}
    row = {"workload": "uniform", "aim": 2.0, "ours": ours, "baselines": [other]}
    return {"rows": [row], "published": [{"workload": "published", "published_mb": 25.0, "mb": live / 10}]}


def consuming(**changes: object) -> dict[str, Any]:
    """Results of consuming in which every aim is met, but for some figures."""
    sizes = {"rate": 2_000, "messages": 10_000_000, "consumers": 64}
    figures: dict[str, dict[str, Any]] = {
        "live": {
            "late until receive, s p50 p99": (0.3, 1.0), "back after the delay, s p50 p99": (0.5, 3.0), "missing": 0,
            "early": 0, "settled s after the last was due": 10, "cpu_s_per_minute of the job": 50.0,
            "cpu_s_per_minute of settle": 5.0, "commits a second": {"cursors": 4.0},
        },
        "drain": {"receive and acknowledge, 1/s": 25_000, "batch_receive_arrow, 1/s": 300_000},
        "send": {"send_async, 1/s": 50_000, "send, s p50 p99": (0.06, 0.1)},
        "holes": {
            "left": 5, "missing": 0, "of the settled half": 0, "first message after, s": 3.0,
            "bytes of the cursor": 2_000_000,
        },
        "joining": {
            "slot without owner, s at most": 10.0, "out of order in their key": 0, "missing": 0,
            "consumers that joined": 99, "commits of consumers a second": 5.0,
        },
        "killed": {"with others after the kill, s at most": 4.0, "missing": 0},
    }  # fmt: skip
    rows = [{"workload": kind, "kind": kind, "parameters": sizes, **values} for kind, values in figures.items()]
    return {"rows": [row | {name: value for name, value in changes.items() if name in row} for row in rows]}


def marks(results: dict[str, Any]) -> dict[tuple[str, str], bool | None]:
    """Which aims are met, by workload and the begin of the measure."""
    return {(line.workload, line.measure.split(",")[0]): line.met for line in aims.table(results)}


def test_each_aim_is_judged_by_its_figure() -> None:
    """At full size; a figure one past the aim is not met."""
    good = {"stages": stages(4.0), "live": {"rows": [live(name) for name in workloads(full=True)]}}
    good |= {"index": index(1.9), "backlog": waiting(1.5), "day": long_run(1.1)}
    found = marks(good)
    assert {key for key, met in found.items() if met is False} == set()
    slow = {"late": late(501, 2_001), "to_prepared": late(900, 2_000), "at_once": late(2_000, 4_000)}
    late_ones: dict[str, Any] = {"warm": slow, "cold": slow, "started_s": 10.1, "last_seen_ms": 10_001}
    busy = live("steady")["quiet"] | {"cpu_s_per_minute": 5.1}
    rows = [live(name, **late_ones, quiet=busy, early=1) for name in workloads(full=True)]
    worse = {"index": index(2.1), "backlog": waiting(1.6), "day": long_run(1.3)}
    bad = marks({"stages": stages(5.1, 10.1), "live": {"rows": rows}} | worse)
    judged = {key for key, met in found.items() if met}
    assert {key for key in judged if bad[key] is not False} == {
        ("intake, a day", "ingest + schedule"), ("fan-out", "50 subscriptions against 1"),
        ("uniform", "index"), ("a day", "memory"),
    }  # fmt: skip
    assert {workload for workload, _ in judged} >= {"steady", "spread", "release", "idle", "parked", "dispatch"}


@pytest.mark.parametrize(
    ("commits", "files", "met", "text"),
    [
        (3, 2, True, "0 commits, 0 data files; maintenance: 3 and 2"),
        (4, 2, False, "1 commits, 0 data files; maintenance: 3 and 2"),
        (3, 3, False, "0 commits, 1 data files; maintenance: 3 and 2"),
    ],
)
def test_while_nothing_is_due_only_maintenance_may_commit(commits: int, files: int, met: bool, text: str) -> None:  # noqa: FBT001 - a parameter
    """It merges what the stream left; whatever a stage does is against the aim."""
    steady = live("steady")
    steady["quiet"] |= {"commits_end": 9 + commits, "data_files": files, "upkeep": {"commits": 3, "data_files": 2}}
    (line,) = (each for each in aims.table({"live": {"rows": [steady]}}) if each.workload == "idle")
    assert (line.met, text in line.ours) == (met, True)


def test_a_short_run_of_a_release_has_a_figure_and_no_verdict() -> None:
    """The aim is for a million."""
    short = live("release", parameters=vars(workloads(full=False)["release"]))
    assert marks({"live": {"rows": [short]}})["release", "due to last row"] is None


def rising(*p99: float) -> dict[str, Any]:
    """Results of runs at 10 000 a second, 20 000, and so on."""
    steady = workloads(full=True)["steady"]
    rows = [
        live("steady", parameters=vars(steady) | {"rate": 10_000 * number}, warm={"late": late(9, each)})
        for number, each in enumerate(p99, start=1)
    ]
    return {"knee": {"rows": rows}}


@pytest.mark.parametrize(
    ("p99", "met", "text"),
    [
        ((80, 90, 100, 200, 1_000), True, "50,000 a second"),
        ((80, 90, 1_001), False, "20,000 a second"),
        ((1_001,), None, "0 a second"),
        ((80,), None, "10,000 a second"),
    ],
)
def test_the_knee_is_the_highest_rate_that_was_on_time(p99: tuple[float, ...], met: bool | None, text: str) -> None:  # noqa: FBT001 - a parameter
    """One run alone is no search: it has a figure and no verdict."""
    line = list(aims.table(rising(*p99)))[-1]
    assert (line.met, line.ours) == (met, text)


@pytest.mark.parametrize(
    ("figure", "worse", "missed"),
    [
        ("late until receive, s p50 p99", (0.31, 0.9), {"live"}),
        ("back after the delay, s p50 p99", (0.1, 3.1), {"live"}),
        ("settled s after the last was due", 10.1, {"live"}),
        ("receive and acknowledge, 1/s", 24_999, {"drain"}),
        ("send, s p50 p99", (0.061, 0.1), {"send"}),
        ("missing", 1, {"live", "holes", "joining", "killed"}),
        ("of the settled half", 1, {"holes"}),
        ("bytes of the cursor", 2_000_001, {"holes"}),
        ("slot without owner, s at most", 10.1, {"joining"}),
        ("out of order in their key", 1, {"joining"}),
        ("with others after the kill, s at most", 4.1, {"killed"}),
    ],
)
def test_each_aim_of_consuming_is_judged_by_its_figure(figure: str, worse: object, missed: set[str]) -> None:
    """All are met at their limits; one figure past its limit is not."""
    assert all(line.met is not False for line in aims.table({"consuming": consuming()}))
    lines = aims.table({"consuming": consuming(**{figure: worse})})
    assert {line.workload for line in lines if line.met is False} == missed


def test_a_search_ends_with_the_first_rate_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is faster still would take as long and say nothing."""
    asked: list[int] = []

    def measured(workload: Workload, system: str) -> dict[str, Any]:
        asked.append(workload.rate)
        assert (workload.seconds, workload.bulk, system) == (60, 0, "delayline")
        return live("steady", warm={"late": late(9, workload.rate / 20)})

    monkeypatch.setattr(knee, "measured", measured)
    assert len(list(knee.runs((10_000, 20_000, 30_000, 40_000), 60))) == 3
    assert asked == [10_000, 20_000, 30_000]


def test_the_report_is_made_again_from_what_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, plots and commands; a baseline that delivered nothing is said to have."""
    nothing = live("steady", "polling", warm={"late": {"count": 0}}, by_minute=[])
    kept = {"steady": {"rows": [live("steady"), live("steady", "row-wise"), nothing]}, "live": {"rows": [live("many")]}}
    kept |= {"stages": stages(4.0), "backlog": waiting(1.2), "day": long_run(1.0), "index": index(1.0)}
    for name, result in kept.items():
        text = json.dumps({**result, "command": f"python -m benchmarks.{name}", "exit": 0, "took_s": 7})
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    assert everything.main(["--report", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "lateness of polling" in printed
    assert "[its p99 is 1.0x ours]" in printed
    assert "[10.0x row-wise, 10.0x polling]" in printed
    assert "it delivered nothing in time" in printed
    assert "[row-wise 4.0 CPU s, polling 4.0 CPU s]" in printed
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("stages.png", "lateness.png", "python -m benchmarks.live, 7 s", "&lt;= 5 CPU s"):
        assert words.replace("live, 7", "live</code>, 7") in page
    pictures = {"stages.png", "lateness.png", "backlog.png", "day.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == pictures
    assert all(f'src="{name}"' in page for name in (*pictures, "lateness.svg"))


def test_every_benchmark_has_lines_a_module_and_sizes() -> None:
    """One that is added is not left out of the table."""
    assert set(everything.SHORT) == set(everything.FULL) == set(aims._LINES)
    for name in everything.SHORT:
        assert (ROOT / "benchmarks" / f"{everything.MODULES.get(name, name)}.py").exists()


def test_kafka_is_judged_by_lateness_by_what_came_and_by_a_copy() -> None:
    """One that was lost is enough."""
    way = {"workload": "way", "rate": 2_000, "p50_s": 0.1, "p99_s": 0.9, "around_p99_s": 7.0}
    counts = {"lost": 0, "twice": 0, "early": 0}
    intake = {
        "workload": "intake",
        "records": 1_000_000,
        "source_s": 4.0,
        "copy_s": 3.0,
        "per_s": 250_000,
        "ratio": 0.75,
    }

    def judged(**changes: float) -> list[bool | None]:
        rows = [way | counts | changes, intake | changes]
        return [line.met for line in aims.table({"kafka": {"rows": rows}})]

    assert judged() == [True, True, True]
    assert judged(p99_s=1.1) == [False, True, True]
    assert judged(lost=1) == [True, False, True]
    assert judged(ratio=0.6) == [True, True, False]


COMMANDS = [(name, words) for sizes in (everything.SHORT, everything.FULL) for name, words in sizes.items()]


@pytest.mark.parametrize(("name", "words"), [each for each in COMMANDS if each[0] not in ("index", "stages")])
def test_each_benchmark_takes_the_words_that_it_is_told(
    name: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that refuses them ends `make bench` after half an hour. The two left out begin to measure at once."""
    module = import_module(f"benchmarks.{everything.MODULES.get(name, name)}")
    monkeypatch.setattr(module, "tell", lambda *_, **__: [])
    assert module.main([*words, "--json"]) == 0

"""The live benchmark: its observer on tables made by hand, its workloads, and what it prints. No Spark runs."""

from __future__ import annotations

import io
import json
import os
import time
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the tables are made by delta-rs")
pytest.importorskip("pyspark", reason="profiles are read by the stages, which need requirements/all.lock")

from deltalake import DeltaTable, write_deltalake

from benchmarks.live import SYSTEMS, Failed, Run, main, profile_text
from benchmarks.support.live_report import show
from benchmarks.support.load import GUARD, Producer, Workload, changed, fill_guard, workloads
from benchmarks.support.observer import PreparedStore, Rows, Until, Watch, observe, read, report, spread_of
from benchmarks.support.observer import main as observer
from benchmarks.support.processes import usage
from benchmarks.support.sizes import merged
from benchmarks.support.snapshot import Snapshot, Upkeep
from pipeline.client.create import create_all
from pipeline.config.profiles import read_profile
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.delta.writing.datafiles import DataFile
from pipeline.dispatch import prepared
from pipeline.dispatch.prepared import Part, Prepared
from pipeline.subscriptions.guards import Guard
from schemas import INBOX
from state.units import Ms
from tests.support.modules import ROOT

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
NOON_MS = NOON.timestamp() * 1_000
TIME = pa.timestamp("us", tz="UTC")
MINUTE = 60_000.0


def commit(table: Path, *late_s: float, asked: bool = True) -> None:
    """Append rows that were due so many seconds before noon, published a minute before that."""
    due = [NOON - timedelta(seconds=each) for each in late_s]
    columns = {"due_time": due, "deliver_at": due if asked else [None] * len(due)}
    columns["publish_time"] = [each - timedelta(minutes=1) for each in due]
    arrays = {name: pa.array(values, TIME) for name, values in columns.items()}
    write_deltalake(table, pa.table(arrays | {"payload": [b"x"] * len(due)}), mode="append")


def seen(at: float, *late: float, delay: float = MINUTE) -> Rows:
    """Rows of one version, so late, ms."""
    due = at - np.array(late)
    return Rows(1, at, due, due, due - delay, np.full(len(due), at))


def test_a_version_is_read_as_what_it_added_against_the_time_at_which_it_was_seen(tmp_path: Path) -> None:
    """The observer takes no time from the writer but the due time of the rows."""
    commit(tmp_path, 1.5, 2.5)
    commit(tmp_path, 0.001)
    rows = [read(tmp_path, version, NOON_MS, {}) for version in (0, 1)]
    assert [(NOON_MS - each.due).tolist() for each in rows] == [[1_500, 2_500], [1]]
    assert [(each.due - each.published).tolist() for each in rows] == [[MINUTE, MINUTE], [MINUTE]]


def test_where_no_time_was_asked_for_the_due_time_counts(tmp_path: Path) -> None:
    """`deliver_at` may be NULL."""
    commit(tmp_path, 3, asked=False)
    rows = read(tmp_path, 0, NOON_MS, {})
    assert rows.asked.tolist() == rows.due.tolist() == [NOON_MS - 3_000]


def test_rows_that_compaction_moved_are_not_seen_again(tmp_path: Path) -> None:
    """A maintenance commit has files and no news."""
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    DeltaTable(tmp_path).optimize.compact()
    found, _ = observe(tmp_path, 0, Until(3, time.monotonic() + 0.2))
    assert [len(each) for each in found] == [1, 1, 0]


def test_a_path_in_the_log_is_unquoted(tmp_path: Path) -> None:
    """Delta writes paths as in a URI."""
    commit(tmp_path, 1)
    entry = next((tmp_path / "_delta_log").glob("*.json"))
    (file,) = tmp_path.glob("*.parquet")
    file.rename(tmp_path / "a b.parquet")
    entry.write_text(entry.read_text(encoding="utf-8").replace(file.name, "a%20b.parquet"), encoding="utf-8")
    assert len(read(tmp_path, 0, NOON_MS, {})) == 1


def test_a_version_is_noted_when_it_appears_and_not_before(tmp_path: Path) -> None:
    """Lateness counts from there."""
    commit(tmp_path, 1)
    watch = Watch(tmp_path, 1)
    watch.start()
    before = time.time() * 1_000
    commit(tmp_path, 1)
    version, at = watch.seen.get(timeout=10)
    after = time.time() * 1_000
    watch.ended.set()
    watch.join()
    assert version == 1
    assert before <= at <= after
    assert watch.seen.empty()


def test_the_observer_ends_after_its_rows_at_a_file_or_in_time(tmp_path: Path) -> None:
    """Whoever waits for it gets an answer, whatever the job does; what was there is counted first."""
    commit(tmp_path, 1, 2)
    commit(tmp_path, 3)
    (tmp_path / "stop").touch()
    words = ["--table", str(tmp_path), "--first", "0"]
    for more, count in (["--rows", "2"], 2), (["--stop", str(tmp_path / "stop")], 3), (["--timeout", "0.1"], 3):
        with redirect_stdout(io.StringIO()) as written:
            assert observer([*words, *more]) == 0
        assert json.loads(written.getvalue())["count"] == count


def test_what_was_due_before_the_measured_time_is_cold() -> None:
    """The first batches of a JVM are slow, and are told apart by due time, not by when they came."""
    figures = report([seen(NOON_MS, 10_000, 10_000), seen(NOON_MS, 200, 400)], NOON_MS - 1_000)
    assert figures["cold"]["late"] == {"count": 2, "p50": 10_000, "p99": 10_000, "p999": 10_000, "max": 10_000}
    assert (figures["warm"]["late"]["count"], figures["warm"]["late"]["p50"]) == (2, 300)


def test_a_row_that_was_visible_before_its_time_is_early() -> None:
    """By the bucket or by the exact time; it must never be."""
    early = Rows(1, 1_000.0, np.array([1_000.0, 900.0]), np.array([900.0, 1_000.5]), np.zeros(2), np.zeros(2))
    assert report([seen(NOON_MS, 0, 5)], 0)["early"] == 0
    assert report([early, seen(NOON_MS, -1)], 0)["early"] == 2


def test_rows_that_were_due_when_published_show_the_way_and_not_lateness() -> None:
    """They cannot be on time: they are the latency from producer to reader."""
    figures = report([seen(NOON_MS, 4_000, delay=0), seen(NOON_MS, 100)], 0)
    assert (figures["warm"]["at_once"]["count"], figures["warm"]["at_once"]["max"]) == (1, 4_000)
    assert (figures["warm"]["late"]["count"], figures["warm"]["late"]["max"]) == (1, 100)


def test_a_row_is_prepared_when_its_file_is_on_the_shelf_or_visible_at_the_latest(tmp_path: Path) -> None:
    """A file that nobody saw there was committed at once."""
    commit(tmp_path, 1)
    commit(tmp_path, 2, 3)
    (path,) = pa.table(DeltaTable(tmp_path, 0).get_add_actions()).column("path").to_pylist()
    noted = {path: NOON_MS - 700}
    rows = [read(tmp_path, version, NOON_MS, noted) for version in (0, 1)]
    assert [each.prepared.tolist() for each in rows] == [[NOON_MS - 700], [NOON_MS] * 2]
    assert read(tmp_path, 0, NOON_MS - 900, noted).prepared.tolist() == [NOON_MS - 900]


def test_the_shelf_is_read_as_the_pipeline_writes_it(tmp_path: Path) -> None:
    """A note is known by its first sight; one that is gone again, and one that is not whole yet, are passed over."""
    files = tuple(DataFile(f"a/{number}.parquet", 1, 1, 1, "{}") for number in range(2))
    note = Prepared("me", 1, Ms(1), (1, 1), tuple(Part(number, 1, 1, (file,)) for number, file in enumerate(files)))
    shelf = PreparedStore(tmp_path)
    shelf.look()
    folder = tmp_path / prepared._FOLDER
    folder.mkdir()
    (folder / "1.json.new").write_text("{", encoding="utf-8")
    (folder / "2.json").symlink_to(folder / "gone")
    (folder / "3.json").write_text(note.dumps(), encoding="utf-8")
    before = time.time() * 1_000
    shelf.look()
    seen = dict(shelf.seen)
    assert seen.keys() == {file.path for file in files}
    assert min(seen.values()) >= before
    shelf.look()
    assert shelf.seen == seen


def test_the_way_to_the_shelf_counts_for_what_had_to_be_prepared_at_once() -> None:
    """What is due later than the lookahead waits in the state first, and says nothing of the way."""
    due = np.array([NOON_MS] * 3)
    published = due - np.array([0, 5_000, 5_001])
    rows = Rows(1, NOON_MS + 9, due, due, published, published + 300)
    assert report([rows], 0, 5_000)["warm"]["to_prepared"]["count"] == 2
    assert report([rows], 0)["warm"]["to_prepared"] == spread_of(np.array([300.0]))
    assert report([rows], NOON_MS + 1, 5_000)["cold"]["to_prepared"]["max"] == 300


def test_drift_is_lateness_by_minute_of_the_run() -> None:
    """A job that falls behind is later in every minute than in the one before."""
    figures = report([seen(NOON_MS, 100), seen(NOON_MS + 59_999, 200, 300), seen(NOON_MS + 60_000, 900)], 0)
    assert [(each["minute"], each["count"], each["max"]) for each in figures["by_minute"]] == [(0, 3, 300), (1, 1, 900)]
    assert (figures["last_seen_ms"] - figures["first_seen_ms"], figures["most_in_a_second"]) == (60_000, 2)
    figures = report([seen(NOON_MS, 100, delay=0), seen(NOON_MS + 90_000, 700, delay=0), seen(NOON_MS, 5)], 0)
    assert [(each["minute"], each["max"]) for each in figures["at_once_by_minute"]] == [(0, 100), (1, 700)]


def test_nothing_seen_is_reported_as_nothing() -> None:
    """A job that delivers nothing is a result too."""
    nothing = np.empty(0)
    assert report([Rows(1, 1.0, nothing, nothing, nothing, nothing)], 0) == {"count": 0, "early": 0, "versions": 1}


@pytest.mark.parametrize("full", [False, True])
def test_the_workloads_can_be_read_and_have_profiles_that_the_job_takes(tmp_path: Path, full: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A misspelt key would end a long run at its start."""
    found = workloads(full=full)
    assert {"steady", "spread", "release", "many"} <= set(found)
    for workload in found.values():
        assert len(workload.listeners) == workload.topics * workload.subscriptions
        (tmp_path / "profile.toml").write_text(profile_text(workload.profile), encoding="utf-8")
        profile = read_profile(tmp_path / "profile.toml")
        assert vars(profile.options.clock)["lookahead_ms"] == workload.profile["clock"]["lookahead_ms"]


def test_the_command_line_has_the_last_word_on_the_profile() -> None:
    """Figures with another setting need no other file."""
    plain = workloads(full=False)["release-plain"]
    other = changed(plain, ["clock.lookahead_ms=7", "run.trigger='1 second'", "seconds=9"])
    assert other.profile == {"clock": {"lookahead_ms": 7}, "run": {"trigger": "1 second"}}
    assert (other.seconds, other.rate) == (9, plain.rate)
    for wrong in ("secs=9", "seconds='9'", "name=9", "sent=9.5"):
        with pytest.raises(ValueError, match=r"not a whole number for a size of release-plain"):
            changed(plain, [wrong])
    both = changed(workloads(full=False)["steady"], ["seconds=9"])
    assert "seconds" not in both.baseline
    assert "high_ms" in both.baseline
    assert merged({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}, "b": {"z": 3}}) == {"a": {"x": 1, "y": 2}, "b": {"z": 3}}


@pytest.fixture
def small() -> Workload:
    """A workload over in a moment: a stream of one append and a bulk."""
    workload = replace(workloads(full=False)["spread"], rate=100, seconds=1, bulk=30, spread_ms=500, due_s=60)
    return replace(workload, topics=3)


def test_the_producer_sends_what_the_workload_says(tmp_path: Path, small: Workload) -> None:
    """Rates, delays, random payloads; one row of each append is due at once."""
    create_all(str(tmp_path))
    begin = time.time_ns() // 1_000_000 - 1_000
    Producer(small, str(tmp_path)).send(begin)
    rows: list[dict[str, Any]] = open_table(str(tmp_path), INBOX).to_pyarrow_table().to_pylist()
    assert len(rows) == small.sent == 130
    delays = [(row["deliver_at"] - row["publish_time"]) / timedelta(milliseconds=1) for row in rows]
    bulk = [row for row, delay in zip(rows, delays, strict=True) if delay > small.high_ms]
    first = datetime.fromtimestamp(small.bulk_due(begin) / 1_000, UTC)
    assert all(timedelta(0) <= row["deliver_at"] - first <= timedelta(milliseconds=500) for row in bulk)
    assert (len(bulk), delays.count(0)) == (30, 2)
    assert all(small.low_ms <= delay for delay in delays if delay)
    assert len({row["payload"] for row in rows}) == 130
    assert {len(row["payload"]) for row in rows} == {100}
    assert {row["topic"] for row in rows} == {"t0", "t1", "t2"}


def test_what_is_not_due_in_time_is_not_awaited(small: Workload) -> None:
    """While the job idles, a bulk waits for another day."""
    assert small.awaited == 130
    assert replace(small, quiet_s=60).awaited == 100
    assert replace(small, subscriptions=2).awaited == 260


def test_what_a_guard_lets_go_is_awaited(tmp_path: Path, small: Workload) -> None:
    """Every second message of an append has its key in the table."""
    create_all(str(tmp_path / "warehouse"))
    guarded = replace(small, guard_rows=7, rate=102, bulk=3)
    fill_guard(str(tmp_path / "paid"), guarded.guard_rows)
    Producer(guarded, str(tmp_path / "warehouse")).send(time.time_ns() // 1_000_000 - 1_000)
    keys = open_table(str(tmp_path / "warehouse"), INBOX).to_pyarrow_table().column("message_key").to_pylist()
    paid = set(DeltaTable(str(tmp_path / "paid")).to_pyarrow_table().column("order_id").to_pylist())
    assert guarded.awaited == len([key for key in keys if key not in paid]) == 2 * 26 + 2
    assert len(paid) == guarded.guard_rows
    Guard(GUARD, {"paid": str(tmp_path / "paid")}).checked()


def test_usage_is_that_of_a_process_and_of_its_descendants(tmp_path: Path) -> None:
    """The JVM and the Python workers below it do the work, not the process that was started."""
    for pid, parent, name in ((10, 1, "python"), (11, 10, "java (x) y"), (12, 11, "worker"), (13, 1, "other")):
        (tmp_path / str(pid)).mkdir()
        numbers = [0] * 9 + [100, 50, 20, 10] + [0] * 6 + [3] + [0] * 5
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {' '.join(map(str, numbers))}\n")
    (tmp_path / "14").mkdir()
    alone, all_of_them = usage(12, tmp_path), usage(10, tmp_path)
    assert (alone.processes, all_of_them.processes) == (1, 3)
    assert all_of_them.cpu_s == pytest.approx(3 * alone.cpu_s)
    assert alone.cpu_s > 0
    assert all_of_them.resident == 3 * alone.resident > 0


def test_a_run_is_told_with_its_parameters_and_cold_beside_warm() -> None:
    """A figure without its parameters is worth nothing."""
    found = report([seen(NOON_MS, 10_000), seen(NOON_MS, 200), seen(NOON_MS, 3_000, delay=0)], NOON_MS - 1_000)
    used: dict[str, Any] = {
        "seconds": 60,
        "cpu_s_per_minute": 11.5,
        "resident_mb": 900,
        "commits_start": 4,
        "commits_end": 7,
    }
    used |= {"commits": {"deliveries": 3, "inbox": 0}, "data_files": 5, "checkpoint_files": 6}
    workload = workloads(full=False)["steady"]
    quiet = used | {"upkeep": {"commits": 2, "data_files": 4}}
    row = {"workload": "steady", "system": "delayline", "parameters": vars(workload), "run": used, "quiet": quiet}
    more: dict[str, Any] = {"missing": 0, "twice": 0, "started_s": 9.5, "job_exit": 0, "longest_pause_ms": 7.5}
    more |= {"way": {"sent to inbox": {"count": 3, "p50": 12, "p99": 40}, "inbox to messages": {"count": 0}}}
    text = "\n".join(show(row | found | more))
    for words in (
        "maintenance: 2 commits, 4 data files",
        "rate 2000",
        "clock.lookahead_ms 10000",
        "cold, late",
        "warm, late",
        "commits 4 to 7 (deliveries 3)",
        "due at once, ms (p50 / p99): sent to inbox 12 / 40\n",
    ):
        assert words in text
    assert next(line for line in text.splitlines() if "warm, late" in line).split()[2:] == ["1", *["0.20"] * 4]


def test_a_job_is_found_as_late_as_it_is(small: Workload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The whole benchmark, on a job that needs no Spark: what comes 0.3 s late is told so."""
    words = [str(ROOT / "tests/support/plain_job.py"), "--late-ms", "300"]
    monkeypatch.setitem(SYSTEMS, "delayline", (words, 1))
    workload = replace(small, topics=1, due_s=6, low_ms=500, high_ms=1_500, spread_ms=100)
    figures = Run(workload, "delayline", tmp_path).measure()
    assert (figures["count"], figures["missing"], figures["twice"], figures["job_exit"]) == (130, 0, 0, 0)
    assert (figures["cold"]["late"]["count"], figures["warm"]["late"]["count"]) == (98, 30)
    assert min(figures[phase]["late"]["p50"] for phase in ("cold", "warm")) >= 300
    assert figures["early"] == 0
    assert figures["intake_done_before_due_s"] > 0
    assert figures["run"]["commits"]["inbox"] == 3
    assert figures["run"]["cpu_s_per_minute"] > 0


def test_data_files_are_those_of_partitions_too_and_not_those_of_the_log(tmp_path: Path) -> None:
    """A checkpoint of the log is written by whoever commits, and is no data."""
    create_all(str(tmp_path))
    before = Snapshot.take(str(tmp_path), os.getpid())
    for name in ("inbox/a.parquet", "messages/day=1/b.parquet", "inbox/_delta_log/1.checkpoint.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "inbox" / "_delta_log" / f"{1:020d}.json").touch()
    figures = Snapshot.take(str(tmp_path), os.getpid()).since(before)
    assert (figures["data_files"], figures["commits"]["inbox"], figures["commits_end"] - figures["commits_start"]) == (
        2,
        1,
        1,
    )


def test_commits_that_append_nothing_are_those_of_maintenance(tmp_path: Path) -> None:
    """Whoever made them; each is counted once."""
    root = str(tmp_path)
    create_all(root)
    table = open_table(root, INBOX)
    row = {"topic": "t", "payload": b"", "publish_time": datetime.now(UTC)}
    append(root, INBOX, rows_of(INBOX, [row]))
    before = Snapshot.take(root, os.getpid())
    upkeep = Upkeep(root, before)
    found = []
    for number in range(3):
        append(root, INBOX, rows_of(INBOX, [row]))
        if number == 1:
            table.update_incremental()
            table.optimize.compact()
        found.append(upkeep.look(now := Snapshot.take(root, os.getpid())))
    assert found == [{"commits": 0, "data_files": 0}, *[{"commits": 1, "data_files": 1}] * 2]
    assert now.since(before)["data_files"] == 4


def test_a_job_that_fails_ends_the_run_with_its_last_words(
    small: Workload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody waits for a job that is gone."""
    monkeypatch.setitem(SYSTEMS, "delayline", (["-c", "raise ValueError('as planned')"], 1))
    with pytest.raises(Failed, match="as planned"):
        Run(small, "delayline", tmp_path).measure()


def test_an_unknown_workload_is_wrong_usage() -> None:
    """And nothing is started."""
    with pytest.raises(SystemExit) as refused:
        main(["stedy"])
    assert refused.value.code == 2

"""Watching: what Spark says of a batch as figures, as metrics, and as a line for a person. No Spark runs."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import tracemalloc
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="watching needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the listener is Spark's")

from pipeline.client.create import create_all
from pipeline.client.insight.backlogfigures import BacklogFigures
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.errors import BadSetting
from pipeline.config.options import SettleBatch, Settled, Watching
from pipeline.service.watch import process
from pipeline.service.watch.line import Line, ProgressAggregator, Publication, percentile, span
from pipeline.service.watch.listener import LOG, Listener
from pipeline.service.watch.metrics import Metrics
from pipeline.service.watch.process import Watcher, watched
from pipeline.service.watch.progress import Progress, parse
from tests.support.modules import ROOT
from tests.support.scraped import full_watcher, scraped

DOCS = ROOT / "docs" / "metrics.md"
RECORDED: dict[str, Any] = json.loads((ROOT / "tests/support/progress.json").read_text(encoding="utf-8"))
"""What Spark 4.2 said of a batch of each stage."""
STAGES = ("ingest", "schedule", "dispatch")
T0, START = 1_700_000_000_000, 1_000_000


def recorded(stage: str, **changes: Any) -> Progress:  # noqa: ANN401 - whatever JSON holds
    """The recorded batch of a stage, with changes."""
    found = parse(RECORDED[stage] | changes)
    assert found is not None
    return found


def batch(**changes: Any) -> Progress:  # noqa: ANN401 - fields of several types
    """A batch of ingest that ended a second after its instant."""
    fields: dict[str, Any] = {
        "stage": "ingest",
        "batch": 3,
        "ended_ms": START + 1_000,
        "rows": 500,
        "instant_ms": START,
    }
    fields |= {"duration_ms": {"triggerExecution": 800, "addBatch": 600}, "version": 9}
    return Progress(**fields | changes)


class Listening:
    """The part of a session that a listener is hung in."""

    def __init__(self) -> None:
        """Nobody listens."""
        self.listeners: list[Listener] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append, removeListener=self.listeners.remove)


def test_the_clock_of_a_batch_is_no_message() -> None:
    """Ingest and schedule have a row of the clock in each batch; dispatch has no clock."""
    ingest, schedule, dispatch = (recorded(stage) for stage in STAGES)
    assert (ingest.rows, schedule.rows, dispatch.rows) == (200, 2, 200)
    assert all(each.instant_ms is not None and each.instant_ms > T0 for each in (ingest, schedule))
    assert (dispatch.instant_ms, dispatch.state_rows, dispatch.watermark_ms) == (None, None, None)


def test_state_and_watermark_are_those_of_the_schedule() -> None:
    """The other stages keep no state."""
    schedule = recorded("schedule")
    assert T0 < (schedule.watermark_ms or 0) <= (schedule.instant_ms or 0)
    assert (schedule.state_rows, schedule.dropped) == (1, 0)
    assert (schedule.state_bytes or 0) > 0


def test_a_batch_ends_when_its_trigger_does() -> None:
    """Spark tells its beginning, and how long it took."""
    found = recorded("ingest", timestamp="1970-01-01T00:00:10.250Z", durationMs={"triggerExecution": 500})
    assert (found.ended_ms, found.seconds) == (10_750, 0.5)


def test_a_source_without_an_offset_yet_has_nothing_to_tell() -> None:
    """A stage that is asked before its first data."""
    sources = [source | {"endOffset": None} for source in RECORDED["ingest"]["sources"]]
    found = recorded("ingest", sources=sources)
    assert (found.instant_ms, found.version) == (None, None)


def test_a_source_that_only_wakes_a_stage_is_no_clock() -> None:
    """Dispatch is woken by the schedule; its instant would be of the year 1970, and the line would say so."""
    woken = RECORDED["ingest"]["sources"][0] | {"endOffset": {"instant": 0}}
    found = recorded("dispatch", sources=[*RECORDED["dispatch"]["sources"], woken])
    assert found.instant_ms is None


@pytest.mark.parametrize("name", [None, "", "somebody", "baseline-ingest"])
def test_the_queries_of_others_are_passed_over(name: str | None) -> None:
    """The session may be shared."""
    assert parse(RECORDED["ingest"] | {"name": name}) is None


def test_a_batch_moves_the_metrics_of_its_stage() -> None:
    """And of no other."""
    metrics = Metrics()
    for each in (batch(), batch(rows=20, version=10), batch(stage="schedule", rows=3, state_rows=7, state_bytes=900)):
        metrics.progressed(each)
    page = scraped(metrics)
    assert page['delayline_batches_total{stage="ingest"}'] == 2
    assert page['delayline_rows_in_total{stage="ingest"}'] == 520
    assert page['delayline_rows_in_total{stage="schedule"}'] == 3
    assert page['delayline_source_version{stage="ingest"}'] == 10
    assert page['delayline_batch_seconds_total{phase="addBatch",stage="ingest"}'] == pytest.approx(1.2)
    assert page['delayline_behind_seconds{stage="ingest"}'] == 1
    assert page['delayline_instant_seconds{stage="ingest"}'] == START / 1_000
    assert page['delayline_state_rows{stage="schedule"}'] == 7
    assert page['delayline_state_bytes{stage="schedule"}'] == 900
    assert 'delayline_state_rows{stage="ingest"}' not in page


def test_a_clock_that_is_ahead_is_not_behind() -> None:
    """A lookahead is no lateness with a minus."""
    metrics = Metrics()
    metrics.progressed(batch(instant_ms=START + 5_000))
    assert scraped(metrics)['delayline_behind_seconds{stage="ingest"}'] == 0


def test_lost_rows_are_an_error_in_the_log_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """The one figure that must stay 0."""
    watcher = Watcher()
    progress = RECORDED["schedule"]
    states = [progress["stateOperators"][0] | {"numRowsDroppedByWatermark": 4}]
    with caplog.at_level(logging.ERROR, LOG.name):
        for each in (progress, progress | {"stateOperators": states}):
            Listener(watcher).take(json.dumps(each))
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("ERROR", ("schedule", 4, progress["batchId"]))
    ]
    assert scraped(watcher)['delayline_rows_dropped_by_watermark_total{stage="schedule"}'] == 4


def test_rows_that_a_stage_read_by_itself_count_with_its_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    """Spark says of such a batch that it had none; whoever watches wants to know what was taken in."""
    watcher = Watcher()
    watcher.took("ingest", 70)
    watcher.took("ingest", 7)
    with caplog.at_level(logging.INFO, LOG.name):
        for _ in range(2):
            Listener(watcher).take(json.dumps(RECORDED["ingest"]))
    known = parse(RECORDED["ingest"])
    assert known is not None
    assert [json.loads(record.message)["rows"] for record in caplog.records] == [known.rows + 77, known.rows]
    assert scraped(watcher)['delayline_rows_in_total{stage="ingest"}'] == 2 * known.rows + 77


def test_who_works_on_batches_is_counted_with_the_reason() -> None:
    """A job that goes to Spark for each batch is ten times slower, and looks the same in every other figure."""
    watcher = Watcher()
    for way in ("driver", "driver", "size"):
        watcher.routed("ingest", way)
    page = scraped(watcher)
    assert page['delayline_batches_by_total{stage="ingest",way="driver"}'] == 2
    assert page['delayline_batches_by_total{stage="ingest",way="size"}'] == 1


def test_a_stage_is_up_from_its_start_to_its_end() -> None:
    """Whoever is called knows the end of a query by its run alone."""
    watcher = Watcher()
    listener = Listener(watcher)
    for run, name in enumerate(("delayline-ingest", "delayline-dispatch", "other", None)):
        listener.onQueryStarted(SimpleNamespace(runId=run, name=name))  # type: ignore[arg-type]
    for run in (0, 2):
        listener.onQueryTerminated(SimpleNamespace(runId=run))  # type: ignore[arg-type]
    page = scraped(watcher)
    assert {name: value for name, value in page.items() if name.startswith("delayline_up")} == {
        'delayline_up{stage="ingest"}': 0,
        'delayline_up{stage="dispatch"}': 1,
    }
    assert page['delayline_rows_dropped_by_watermark_total{stage="ingest"}'] == 0


def test_lateness_spreads_between_the_first_and_the_last_due_time_of_a_commit() -> None:
    """A commit of a second of messages has lateness over a second, not one figure."""
    part = Publication.of(100, START, START + 1_000, START + 1_500)
    assert (part.least_s, part.most_s, part.sum_s) == (0.5, 1.5, 100)
    assert [part.within(bound) for bound in (0.25, 0.5, 1.0, 1.5, 9.0)] == [0, 0, 50, 100, 100]
    assert Publication.of(7, START, START, START).within(0.0) == 7


def test_the_99th_percentile_is_over_all_commits() -> None:
    """One late commit among many counts with what it held."""
    on_time = Publication(98, 0.1, 0.1)
    assert percentile([on_time, Publication(2, 5.0, 5.0)], 0.99) == pytest.approx(5.0, abs=0.002)
    assert percentile([on_time, Publication(100, 0.0, 1.0)], 0.99) == pytest.approx(0.98, abs=0.002)
    assert percentile([on_time], 0.99) == pytest.approx(0.1, abs=0.002)
    assert percentile([], 0.99) is None


def test_the_histogram_counts_each_delivery() -> None:
    """Not each commit."""
    metrics = Metrics()
    metrics.published(100, START, START + 1_000, START + 1_500)
    metrics.published(10, START, START, START + 9_000_000)
    page = scraped(metrics)
    late = {bound: page[f'delayline_lateness_seconds_bucket{{le="{bound}"}}'] for bound in ("0.25", "1.0", "2.0")}
    assert late == {"0.25": 0, "1.0": 50, "2.0": 100}
    assert page['delayline_lateness_seconds_bucket{le="+Inf"}'] == page["delayline_lateness_seconds_count"] == 110
    assert page["delayline_lateness_seconds_sum"] == 90_100
    assert (page["delayline_delivered_total"], page["delayline_publications_total"]) == (110, 2)


def test_the_document_names_every_metric_with_type_and_labels() -> None:
    """It is what somebody writes alerts from."""
    known = {
        family.name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for family in full_watcher().registry.collect()
    }
    rows = re.findall(r"^\| `(delayline_\w+)` \| (\w+) \| ([\w, ]*)\|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows} == known


def test_the_line_reads_as_the_document_shows_it() -> None:
    """For a person, who has other things to look at."""
    line = Line(5_012.4, 4_998, 1_203_441, 0.3, 0.4, 12.5)
    assert f"\n{line}\n" in DOCS.read_text(encoding="utf-8")
    for behind_s in (None, 0.0, 4.9, 10.0):
        assert str(Line(0, 0, None, None, None, behind_s)) == "in 0/s  out 0/s", "a job that idles is not behind"
    assert [span(each) for each in (0, 59.94, 90, 5_400, 200_000)] == ["0.0 s", "59.9 s", "1.5 min", "1.5 h", "2.3 d"]


def test_a_line_tells_what_happened_since_the_last_one() -> None:
    """Rates of its own few seconds; lateness of the last minute."""
    board = ProgressAggregator(START)
    for each in (batch(rows=1_000), batch(stage="schedule", rows=5, instant_ms=START + 400)):
        board.progressed(each)
    board.published(Publication(600, 2.0, 2.0), START + 1_000)
    board.waiting(42, START + 5_000)
    first, second = board.line(START + 2_000), board.line(START + 7_000)
    assert (first.taken_per_s, first.out_per_s, first.pending, first.behind_s) == (500, 300, 42, 1.0)
    assert first.next_due_s == 3.0
    assert first.late_p99_s == pytest.approx(2.0, abs=0.002)
    assert (second.taken_per_s, second.out_per_s, second.pending, second.behind_s) == (0, 0, 42, 1.0)
    assert (second.next_due_s, second.moves) == (None, False)
    assert second.late_p99_s is not None
    assert board.line(START + 30_000).behind_s == 30.0, "who tells nothing for long is behind by then"
    assert board.line(START + 62_000).late_p99_s is None


def test_a_watch_that_nobody_looks_at_keeps_nothing(tmp_path: Path) -> None:
    """Stages under spark-submit report to nobody, for weeks. The clock may be set, too."""
    session: Any = Listening()
    with watched(session, str(tmp_path), Watching()) as watcher:
        tracemalloc.start()
        try:
            for second in range(600):
                feed(watcher, second)
            before, _ = tracemalloc.get_traced_memory()
            for second in range(86_400, 86_400 + 3_000):
                feed(watcher, second)
            for second in range(600, 3_000):
                feed(watcher, second)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 20_000


def feed(watcher: Watcher, second: int) -> None:
    """What the stages tell within a second."""
    now = START + 1_000 * second
    watcher.published(10, now - 20, now - 10, now)
    watcher.progressed(batch(batch=second, instant_ms=now))
    watcher.took("dispatch", 3)
    watcher.sink_late("t", "s", 0.1)
    watcher.waiting(BacklogFigures(now, second, next_due_ms=now))


def test_metrics_of_a_subscription_that_has_ended_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a page of metrics has all that ever were. What stages tell before the registry shows it stays."""
    root, watcher, ended = str(tmp_path / "w"), Watcher(), threading.Event()
    create_all(root)
    for name in ("a", "b"):
        subscribe(root, Subscription("t", name))
    looks = list[set[str]]()

    def wait(_: float) -> bool:
        found = {name for name in scraped(watcher) if 'topic="t"' in name}
        looks.append({name.partition('subscription="')[2][:1] for name in found})
        if len(looks) == 2:
            unsubscribe(root, "t", "a")
        return len(looks) > 4

    for name in ("a", "b", "c"):
        figures = Settled("t", name, 1, 2, 3, {"nack": 4}, 5)
        watcher.settled(SettleBatch(1, 1, START, START, START, 1, 0, (figures,)))
        watcher.left_out("t", name, "expired", 1)
        watcher.sink_late("t", name, 0.5)
    monkeypatch.setattr(ended, "wait", wait)
    process._forget(root, watcher, ended)
    assert looks == [{"a", "b", "c"}, {"a", "b", "c"}, {"a", "b"}, {"b"}, {"b"}]


def test_a_quiet_service_still_reports_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who looks wants to see that it is alive, and not every five seconds."""
    said, ended, board = list[str](), threading.Event(), ProgressAggregator(START)
    steps = iter([lambda: board.progressed(batch()), *[lambda: None] * 24, ended.set])

    def wait(_: float) -> bool:
        next(steps)()
        return ended.is_set()

    monkeypatch.setattr(ended, "wait", wait)
    process._report(board, said.append, ended)
    assert len(said) == 3


def test_what_is_pending_is_counted_and_what_cannot_be_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A count that fails would end in a stack trace beside the reason that matters."""
    watcher, ended, waits = Watcher(), threading.Event(), list[float]()
    create_all(str(tmp_path / "there"))

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > 1

    monkeypatch.setattr(ended, "wait", wait)
    process._count(str(tmp_path / "there"), watcher, ended)
    assert scraped(watcher)["delayline_pending"] == 0
    assert waits[1] >= 5
    waits.clear()
    with caplog.at_level(logging.WARNING, LOG.name):
        process._count(str(tmp_path / "gone"), watcher, ended)
    assert len(caplog.records) == 1


def test_metrics_are_served_and_batches_logged_while_somebody_watches(tmp_path: Path) -> None:
    """The profile says where; afterwards the port is free, and nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    session, log = Listening(), tmp_path / "progress.jsonl"
    for _ in range(2):
        with watched(session, str(tmp_path), Watching(port, str(log))):  # type: ignore[arg-type]
            session.listeners[0].take(json.dumps(RECORDED["ingest"]))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert 'delayline_rows_in_total{stage="ingest"} 200.0' in answer.read().decode()
        assert session.listeners == []
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [(line["event"], line["stage"], line["rows"]) for line in lines] == [("progress", "ingest", 200)] * 2


def test_a_port_that_is_taken_and_a_file_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """With the name of the setting, before a stage runs."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 - where the metrics are served, too
        taken.listen()
        for watching in (Watching(metrics_port=taken.getsockname()[1]), Watching(progress_log=str(tmp_path))):
            with pytest.raises(BadSetting) as refused, watched(Listening(), "", watching):  # type: ignore[arg-type]
                pass
            assert refused.value.field in ("run.metrics_port", "run.progress_log")
    with pytest.raises(BadSetting):
        Watching(metrics_port=0)

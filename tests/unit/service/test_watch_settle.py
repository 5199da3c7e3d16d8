"""What settle tells of its batches, as metrics and as lines of the progress log. No Spark runs."""

from __future__ import annotations

import json
import logging

import pytest

pytest.importorskip("prometheus_client", reason="watching needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the listener is Spark's")

from pipeline.config.options import SettleBatch, Settled
from pipeline.service.watch.listener import LOG
from pipeline.service.watch.process import Watcher
from tests.support.scraped import scraped

START = 1_000_000
LABELS = 'subscription="billing",topic="orders"'


def batch(number: int, *subscriptions: Settled, refused: int = 0) -> SettleBatch:
    """A batch of 100 events that took 300 ms and ended 500 ms after its instant."""
    return SettleBatch(number, 100, START + 200, START + 500, START, 8 + number, refused, subscriptions)


def test_what_is_open_is_told_as_it_is_and_what_happened_adds_up() -> None:
    """Outstanding and waiting are states; acknowledgements, failures and dead letters are counted."""
    watcher = Watcher()
    watcher.settled(batch(0, Settled("orders", "billing", 50, 3, 90, {"nack": 2, "ack_timeout": 1}, 1), refused=4))
    watcher.settled(batch(1, Settled("orders", "billing", 20, 5, 30, {"nack": 2}, 0), refused=1))
    metrics = scraped(watcher)
    assert metrics[f"delayline_outstanding{{{LABELS}}}"] == 20
    assert metrics[f"delayline_waiting{{{LABELS}}}"] == 5
    assert metrics[f"delayline_acked_total{{{LABELS}}}"] == 120
    assert metrics[f"delayline_dead_letters_total{{{LABELS}}}"] == 1
    assert metrics[f'delayline_returned_total{{cause="nack",{LABELS}}}'] == 4
    assert metrics[f'delayline_returned_total{{cause="ack_timeout",{LABELS}}}'] == 1
    assert metrics["delayline_events_refused_total"] == 5


def test_a_batch_of_settle_is_told_as_those_of_the_stages_are(caplog: pytest.LogCaptureFixture) -> None:
    """In the metrics by stage, and as a line of the progress log."""
    watcher = Watcher()
    watcher.started("settle")
    with caplog.at_level(logging.INFO, LOG.name):
        watcher.settled(batch(3))
    line = json.loads(caplog.records[0].message)
    assert (line["stage"], line["batch"], line["rows"], line["version"]) == ("settle", 3, 100, 11)
    metrics = scraped(watcher)
    assert metrics['delayline_up{stage="settle"}'] == 1
    assert metrics['delayline_batches_total{stage="settle"}'] == 1
    assert metrics['delayline_batch_seconds_total{phase="triggerExecution",stage="settle"}'] == pytest.approx(0.3)
    assert metrics['delayline_behind_seconds{stage="settle"}'] == 0.5
    assert metrics['delayline_rows_in_total{stage="settle"}'] == 100


def test_settle_that_rests_does_not_make_the_line_say_behind() -> None:
    """While nobody acknowledges it has nothing to do, and its last instant grows old."""
    watcher = Watcher()
    watcher.settled(batch(0))
    assert watcher.board.line(START + 3_600_000).behind_s is None

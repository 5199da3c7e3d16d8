"""The demo's storm: reminders of a day are shifted after a look, and one airline's are taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas", reason="the demo needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.demo.check import STORM
from jobs.demo.storm import EVE_MS, Storm, announce
from pipeline.client.create import create_all
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from schemas import MESSAGES
from tests.support.client import message_row, noticed, put

HOUR, DAY = 3_600_000, 86_400_000
NOON = int(STORM[0].timestamp() * 1_000) + 7 * HOUR


def row(entry: int, airline: str, due: int = NOON, topic: str = "reminders") -> dict[str, Any]:
    """A message that is booked by the eve."""
    return {**message_row(1, entry, due, topic, published=EVE_MS), "properties": [("airline", airline)]}


def storm(root: str, *rows: dict[str, Any]) -> Storm:
    """What is commanded when such messages wait."""
    create_all(root)
    subscribe(root, Subscription("reminders", "push"))
    noticed(root, "push", 0, topic="reminders")
    put(root, MESSAGES, *rows)
    return announce(root)


def test_reminders_of_the_day_come_two_hours_later_but_for_one_airline(tmp_path: Path) -> None:
    """The lines are what somebody would type, each with what it says."""
    rows = [row(0, "UA"), row(1, "DL"), row(2, "DL"), row(3, "DL", NOON + DAY), row(4, "DL", NOON - DAY)]
    moves = storm(str(tmp_path), *rows, row(5, "DL", topic="follow-ups"))
    assert moves.moved == 2
    (found,) = pending(str(tmp_path)).backlogs
    assert sorted(found.minutes.items()) == [(NOON - DAY, 1), (NOON, 1), (NOON + 2 * HOUR, 2), (NOON + DAY, 1)]
    lines = list(moves.lines())
    assert lines[1::2][:3] == [
        "  reminders: 3 would be shifted",
        "  reminders: 2 shifted",
        "  reminders: 1 shifted",
    ]
    assert lines[-1] == f"  undo of {moves.mine.command_id}: 1 taken back"
    assert lines[0].startswith(
        "delayline shift --topic reminders --by +2h --where \"due_time >= '2013-02-09T05:00:00Z'"
    )


def test_a_small_draw_may_have_nothing_to_move(tmp_path: Path) -> None:
    """Then nothing is taken back."""
    moves = storm(str(tmp_path), row(0, "DL", NOON + DAY))
    assert (moves.moved, moves.back, len(list(moves.lines()))) == (0, None, 6)

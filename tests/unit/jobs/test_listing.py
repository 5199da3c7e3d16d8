"""What `delayline list` prints, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands.listing import listed
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from schemas import MESSAGES
from tests.support.client import at, message_row, new_warehouse, noticed, put
from tests.support.invoked import output, run

NOON = 1_700_000_000_000


@pytest.fixture
def trips(tmp_path: Path) -> str:
    """Two reminders that wait, and one in the inbox."""
    root = new_warehouse(str(tmp_path))
    subscribe(root, Subscription("reminders", "mail"))
    noticed(root, "mail", 0, topic="reminders")
    rows = [message_row(1, number, NOON + number * 1_000, "reminders") for number in range(2)]
    more: tuple[dict[str, Any], ...] = (
        {"message_key": "UA\n1", "payload": b"hi\n", "properties": [("a", "b")]},
        {"payload": b"\xff"},
    )
    put(root, MESSAGES, *(row | each for row, each in zip(rows, more, strict=True)))
    send(root, [OutgoingMessage("reminders", b"")])
    return root


def test_a_line_is_a_message_that_waits(trips: str) -> None:
    """By due time; what a terminal would follow is spelled out."""
    lines = output(trips, "list").splitlines()
    assert lines[:2] == [
        "2023-11-14T22:13:20.000Z  reminders/mail  1:0  [UA\\n1]  3 bytes",
        "2023-11-14T22:13:21.000Z  reminders/mail  1:1  1 bytes",
    ]
    assert "1 more in the inbox" in run(trips, "list").stderr
    shown = output(trips, "list", "--payload", "--limit", "1", "--topic", "reminders").splitlines()
    assert shown[0].endswith("[UA\\n1]  hi\\n")
    assert run(trips, "list", "--where", "message_key IS NULL").stdout.count("\n") == 1


def test_in_json_a_line_has_what_was_sent(trips: str) -> None:
    """Bytes that are no text in base64."""
    first, second = map(json.loads, run(trips, "list", "--json", "--payload").stdout.splitlines())
    assert first == {
        "topic": "reminders",
        "subscription": "mail",
        "due_time": "2023-11-14T22:13:20.000Z",
        "publish_time": "1970-01-01T00:00:00.000Z",
        "payload_bytes": 3,
        "key": "UA\n1",
        "position": "1:0",
        "properties": {"a": "b"},
        "redelivery_count": 0,
        "payload": "hi\n",
    }
    assert second["payload_base64"] == "/w=="
    assert "payload" not in json.loads(run(trips, "list", "--json", "--limit", "1").stdout)


def test_what_cannot_be_listed_is_refused(trips: str) -> None:
    """Names that nobody knows, and options that exclude each other."""
    assert run(trips, "list", "--key", "a", "--where", "true").exit_code == 2
    assert run(trips, "list", "--where", "sum(").exit_code == 2
    wrong = run(trips, "list", "--topic", "remindres")
    assert (wrong.exit_code, "did you mean 'reminders'?" in wrong.stderr) == (1, True)


def test_who_follows_gets_what_is_new_and_what_is_due_at_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once."""
    monkeypatch.setattr("jobs.commands.listing.time.sleep", lambda _: None)

    def row(entry: int, due: int) -> dict[str, Any]:
        same = {"topic": "t", "subscription": "s", "ledger_id": 1, "redelivery_count": 0}
        return {**same, "entry_id": entry, "due_time": at(due)}

    looks = iter([[row(0, 5), row(1, 6)], [row(1, 6), row(2, 9)], [row(1, 8), row(2, 9)]])
    found = listed(lambda: next(looks), follow=True, limit=4)
    assert list(found) == [row(0, 5), row(1, 6), row(2, 9), row(1, 8)]

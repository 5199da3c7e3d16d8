"""What `delayline trace` prints, for people and for scripts."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import typer
from typer.testing import Result

from jobs import cli
from jobs.commands.tracing import report
from pipeline.client.insight.facts import Fact, Sent, Step
from pipeline.client.insight.trace import MessageState, Trace
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from schemas import MESSAGES
from tests.support.client import message_row, new_warehouse, noticed, put
from tests.support.invoked import invoke
from tests.support.modules import ROOT

NOON = 1_700_000_000_000
SENT = Sent((1, 0), "UA-1", {}, NOON, NOON, NOON, 1_200)


@pytest.fixture
def trips(tmp_path: Path) -> str:
    """Two reminders with one key that wait, and one that ingest has not taken."""
    root = str(tmp_path)
    new_warehouse(root)
    subscribe(root, Subscription("reminders", "mail"))
    noticed(root, "mail", 0, topic="reminders")
    rows = [message_row(1, number, NOON + number * 1_000, "reminders") for number in range(2)]
    put(root, MESSAGES, *({**each, "message_key": "UA-1"} for each in rows))
    return root


def run(root: str, *words: str) -> Result:
    """Run a command in this process."""
    return invoke(["trace", "--topic", "reminders", *words, "--warehouse", root])


def lines(*steps: Step, states: tuple[MessageState, ...] = ()) -> list[str]:
    """What is printed of steps and states."""
    return list(report("t", [Trace("t", SENT, steps, states)], 1))[1:]


def test_a_message_its_steps_and_its_states_are_lines(trips: str) -> None:
    """The newest messages with the key, the oldest of them first."""
    send(trips, [OutgoingMessage("reminders", b"xyz", key="UA-1")])
    assert run(trips, "--key", "UA-1").output.splitlines()[:5] == [
        "reminders 1:0 [UA-1] due 2023-11-14T22:13:20.000Z, 0 bytes",
        "  1970-01-01T00:00:00.000Z  sent",
        "                            accepted at 1:0",
        "  mail: waits, is due 2023-11-14T22:13:20.000Z",
        "",
    ]
    last = run(trips, "--key", "UA-1", "--limit", "1").output.splitlines()
    assert last[0] == "There are older ones; --limit 2 shows more."
    assert last[1] == "reminders [UA-1] 3 bytes"
    assert last[-1] == "  it waits in the inbox until ingest takes it"
    assert run(trips, "--key", "nosuch").output == "reminders: no table has such a message\n"


@pytest.mark.parametrize(
    ("what", "details", "says"),
    [
        ("sent", {}, "sent"),
        ("refused", {"reason": "no_topic"}, "refused by ingest: no_topic"),
        ("released", {"cause": "due"}, "released (its time has come)"),
        ("released", {"cause": "nack"}, "released (nack)"),
        ("left_out", {"reason": "cancelled"}, "left out by dispatch: cancelled"),
        ("published", {"late_ms": 1_234}, "published, 1,234 ms late"),
        ("published", {"late_ms": 796_287}, "published, 13m 16s late"),
        ("published", {"late_ms": None}, "published, not noted yet when"),
        (
            "published",
            {"late_ms": 61_000, "job_started_at": NOON},
            "published, 1m 1s late: its job was started at 2023-11-14T22:13:20.000Z",
        ),
        ("closed", {"cause": "ack"}, "settled while it waited to come again (ack)"),
        ("ack", {"consumer": "w\n1"}, "acknowledged by w\\n1"),
        ("nack", {"cause": "nack", "after_ms": 5_000}, "failed, to come again after 5s"),
        ("nack", {"cause": "ack_timeout", "consumer": "w"}, "failed by w (ack_timeout)"),
        ("cancel", {"command_id": "c", "by": "ann", "reason": "snow"}, "cancel by ann, command c: snow"),
        ("undo", {"command_id": "u", "undoes": "c"}, "undo of c, command u"),
        ("dead_letter", {"topic": "D", "position": "7:0", "cause": "nack"}, "became a dead letter: D 7:0 (nack)"),
    ],
)
def test_each_kind_of_step_has_words(what: str, details: dict[str, Fact], says: str) -> None:
    """Names that somebody else chose are on one line."""
    assert lines(Step(what, NOON, details=details)) == [f"  2023-11-14T22:13:20.000Z  {says}"]


def test_whose_step_it_is_and_how_often_the_message_came_is_told() -> None:
    """So is how it stands."""
    state = MessageState("mail", 1, "waits_again", NOON, 2)
    assert lines(Step("released", NOON, "mail", 1, 2, {"cause": "nack"}), states=(state,)) == [
        "  2023-11-14T22:13:20.000Z  mail: released (nack), redelivery 2",
        "  mail: failed, and waits to come again, is due 2023-11-14T22:13:20.000Z, redelivery 2",
    ]


def test_scripts_get_a_line_of_json_for_each_message(trips: str) -> None:
    """Times and positions as text."""
    found = [json.loads(line) for line in run(trips, "--position", "1:1", "--json").output.splitlines()]
    assert [(each["as_sent"]["position"], each["as_sent"]["due_time"]) for each in found] == [
        ("1:1", "2023-11-14T22:13:21.000Z")
    ]
    assert [each["what"] for each in found[0]["steps"]] == ["sent", "accepted"]
    assert [each["state"] for each in found[0]["states"]] == ["waits"]


@pytest.mark.parametrize("words", [(), ("--key", "a", "--position", "1:0"), ("--position", "1"), ("--key", "\udcff")])
def test_what_cannot_be_looked_for_is_a_matter_of_usage(trips: str, words: tuple[str, ...]) -> None:
    """Nothing is looked for."""
    assert run(trips, *words).exit_code == 2


def test_every_command_of_the_page_is_a_command() -> None:
    """With each of its options."""
    group: Any = typer.main.get_command(cli.app)
    lines = re.findall(r"^delayline .*$", (ROOT / "docs" / "insight.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 16
    for words in (shlex.split(line)[1:] for line in lines):
        with group.make_context("delayline", list(words)) as context:
            name, found, rest = group.resolve_command(context, list(words))
            found.make_context(name, rest)

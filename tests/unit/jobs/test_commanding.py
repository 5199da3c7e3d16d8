"""The commands that cancel what waits: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.delta.deltars import open_table
from pipeline.testing.warehouse import warehouse
from schemas import INBOX, MESSAGES
from tests.support.client import message_row, new_warehouse, noticed, put
from tests.support.invoked import output, run

NOON = 1_700_000_000_000
UA = ("--where", "properties['airline'] = 'UA'")


@pytest.fixture
def trips(tmp_path: Path) -> str:
    """Three reminders that wait, two of them of one airline."""
    root = str(tmp_path)
    new_warehouse(root)
    subscribe(root, Subscription("reminders", "mail"))
    noticed(root, "mail", 0, topic="reminders")
    keys = ("UA-1", "UA-2", "DL-3")
    rows = [message_row(1, number, NOON + number * 1_000, "reminders") for number in range(3)]
    put(
        root,
        MESSAGES,
        *({**r, "message_key": k, "properties": [("airline", k[:2])]} for r, k in zip(rows, keys, strict=True)),
    )
    return root


def test_a_dry_run_prints_what_the_command_then_does_and_an_undo_takes_it_back(trips: str) -> None:
    """As on the page."""
    dry = output(trips, "cancel", "--topic", "reminders", *UA, "--dry-run").splitlines()
    assert dry == [
        "reminders: 2 would be cancelled",
        "  for mail: 2",
        "first due 2023-11-14T22:13:20.000Z, last due 2023-11-14T22:13:21.000Z",
        "  mail 1:0 [UA-1] due 2023-11-14T22:13:20.000Z",
        "  mail 1:1 [UA-2] due 2023-11-14T22:13:21.000Z",
    ]
    assert output(trips, "commands") == "No command.\n"
    done = output(trips, "cancel", "--topic", "reminders", *UA, "--issued-by", "ann", "--reason", "snow").splitlines()
    assert done[1:-1] == dry[1:]
    assert done[0] == "reminders: 2 cancelled"
    command = done[-1].removeprefix("command ")
    first, *rest = output(trips, "commands").splitlines()
    assert first.endswith(f"  {command}  cancel reminders/mail by ann")
    assert rest == ["  2 named: 2 applied", "  where: properties['airline'] = 'UA'", "  reason: snow"]
    back = output(trips, "undo", command).splitlines()
    assert back[0] == f"undo of {command}: 2 taken back"
    listed = output(trips, "commands").splitlines()
    assert listed[0].split("  ")[-1] == f"undo of {command}"
    assert "  2 named: 0 applied, 2 undone" in listed
    again = output(trips, "undo", command).splitlines()
    assert again == [f"undo of {command}: nothing that is pending is meant"]


def test_another_time_is_shown_beside_the_one_before_it(trips: str) -> None:
    """A dry run, the command, what became of it, and taking it back."""
    at_ten = ("--to", "2030-01-31T10:00:00+02:00")
    for words, done, then in (
        (("shift", "--by", "+2h"), "shifted", "2023-11-15T00:13:20.000Z"),
        (("shift", "--by", "-30m"), "shifted", "2023-11-14T21:43:20.000Z"),
        (("reschedule", *at_ten), "rescheduled", "2030-01-31T08:00:00.000Z"),
    ):
        dry = output(trips, *words, "--topic", "reminders", *UA, "--dry-run").splitlines()
        assert dry[0] == f"reminders: 2 would be {done}"
        assert dry[2] == "first due 2023-11-14T22:13:20.000Z, last due 2023-11-14T22:13:21.000Z"
        assert dry[3].startswith(f"then first due {then}, last due ")
        assert dry[4] == "  mail 1:0 [UA-1] due 2023-11-14T22:13:20.000Z"
    lines = output(trips, "shift", "--topic", "reminders", "--by", "2h", *UA, "--issued-by", "ann").splitlines()
    command = lines[-1].removeprefix("command ")
    listed = output(trips, "commands").splitlines()
    assert listed[0].endswith(f"  {command}  shift reminders/mail by ann")
    assert listed[1] == "  2 named: 2 applied"
    back = output(trips, "undo", command).splitlines()
    assert back[3] == "then first due 2023-11-14T22:13:20.000Z, last due 2023-11-14T22:13:21.000Z"
    assert output(trips, "release", "--topic", "reminders", "--key", "DL-3").startswith("reminders: nothing")


def test_scripts_get_json(trips: str) -> None:
    """Times as text."""
    done: dict[str, Any] = json.loads(output(trips, "cancel", "--topic", "reminders", "--key", "DL-3", "--json"))
    assert (done["kind"], done["selection"]["count"], done["selection"]["last_due"]) == (
        "cancel",
        1,
        "2023-11-14T22:13:22.000Z",
    )
    (line,) = output(trips, "commands", "--json").splitlines()
    found = json.loads(line)
    assert (found["command_id"], found["applied"], found["where"]) == (done["command_id"], 1, "message_key = 'DL-3'")
    assert found["at"] > done["selection"]["last_due"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("cancel", "--topic", "reminders"), 2, "--where"),
        (("cancel", "--topic", "reminders", "--key", "a", "--where", "true"), 2, "--where"),
        (("cancel", "--topic", "reminders", "--where", "nosuch = 1"), 2, "payload_bytes"),
        (("cancel", "--topic", "nosuch", "--where", "true"), 1, "nosuch"),
        (("cancel", "--topic", "reminders", "--subscription", "nosuch", "--where", "true"), 1, "nosuch"),
        (("shift", "--topic", "reminders", "--by", "some hours", "--key", "a"), 2, "+2h"),
        (("shift", "--topic", "reminders", "--by", "--2h", "--key", "a"), 2, "+2h"),
        (("shift", "--topic", "reminders", "--by", "+0h", "--key", "a"), 2, "span"),
        (("reschedule", "--topic", "reminders", "--to", "next week", "--key", "a"), 2, "tomorrow 9am"),
        (("reschedule", "--topic", "reminders", "--key", "a"), 2, "--to"),
        (("release", "--topic", "reminders"), 2, "--where"),
        (("undo", "nosuch"), 1, "command_id = 'nosuch'"),
        (("commands", "--limit", "0"), 2, "--limit"),
    ],
)
def test_what_cannot_be_followed_is_said_in_a_line(trips: str, words: tuple[str, ...], code: int, says: str) -> None:
    """What it is, and what is allowed."""
    result = run(trips, *words)
    assert result.exit_code == code
    assert says in result.output
    assert output(trips, "commands") == "No command.\n"


def test_a_message_is_named_by_the_id_that_send_prints() -> None:
    """To cancel and to trace; another form, or two ways to name messages, is a usage error."""
    with warehouse() as world:
        output(world.root, "subscribe", "-t", "orders", "-s", "s")
        world.run_until_idle()
        sent = json.loads(output(world.root, "send", "-t", "orders", "--deliver-after", "1h", "--json", "pay"))
        (named,) = sent["message_ids"]
        assert output(world.root, "cancel", "-t", "orders", "--id", named).startswith("orders: 1 cancelled")
        assert f"where: message {named}" in output(world.root, "commands")
        assert "cancelled" in output(world.root, "trace", "-t", "orders", "--id", named)
        for words in (["--id", "7"], ["--id", "shop:x"], ["--id", named, "--key", "k"]):
            refused = run(world.root, "cancel", "-t", "orders", *words)
            assert refused.exit_code == 2
            assert "--id" in refused.stderr


def test_what_is_sent_to_a_divided_topic_goes_to_its_partitions() -> None:
    """By the hash of the key, or in turn; a message is found by its id without the partition."""
    with warehouse() as world:
        create_partitioned_topic(world.root, "orders", 2)
        output(world.root, "subscribe", "-t", "orders", "-s", "s")
        world.run_until_idle()
        sent = [
            json.loads(output(world.root, "send", "-t", "orders", "--json", *more))
            for more in (["a"], ["-k", "k", "b"])
        ]
        world.run_until_idle()
        assert {row["topic"] for row in open_table(world.root, INBOX).to_pyarrow_table().to_pylist()} <= {
            "orders-partition-0",
            "orders-partition-1",
        }
        # The command asks the machine for the time.
        world.advance(minutes=1)
        (named,) = sent[1]["message_ids"]
        assert "published" in output(world.root, "trace", "-t", "orders", "--id", named)

"""One table of words for options and JSON, which all commands follow."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import typer

from jobs import cli
from jobs.commands.deadletters import as_json as dead_letter
from jobs.commands.jsonform import json_line
from jobs.commands.replay import as_json as replayed
from jobs.commands.run import Counts
from pipeline.client.insight.facts import Sent, Step
from pipeline.client.insight.trace import MessageState, Trace
from pipeline.client.subscribing.deadletters import DeadLetter
from pipeline.moving.pulsar import Taken
from pipeline.service.replay import ReplayClock
from tests.support.words import check, table

NOON = 1_700_000_000_000


def options() -> Iterator[tuple[str, str, Any]]:
    """Each option of each command: its long name, the command, what Typer knows of it."""

    def below(command: Any, name: str) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401 - Typer's own types are private
        for word, each in getattr(command, "commands", {}).items():
            yield from below(each, f"{name} {word}")
        for each in [] if hasattr(command, "commands") else command.params:
            if each.param_type_name == "option" and each.name != "help":
                yield each.opts[0], name.strip(), each

    return below(typer.main.get_command(cli.app), "")


def test_the_page_has_each_option() -> None:
    """And none that is not there."""
    assert sorted({name for name, _, _ in options()}) == sorted(table("Options"))


def test_an_option_takes_the_same_kind_of_value_in_each_command() -> None:
    """A word that means two things is two words."""
    forms = defaultdict[str, set[str]](set)
    for name, _, option in options():
        forms[name].add(option.metavar or option.type_descriptor.annotation.__name__)
        kind = table("Options")[name]
        assert option.is_flag == (kind == "flag"), name
        assert (option.metavar == "TIME") == (kind == "time"), name
        assert (option.metavar in ("DURATION", "SPAN")) == (kind == "duration"), name
    own = {"TENANT/NAMESPACE/TOPIC"}
    assert {name: each for name, each in forms.items() if len(each - own) > 1} == {}


def test_what_needs_a_job_or_a_broker_prints_the_words_of_the_page() -> None:
    """All else is looked at wherever a test runs a command (`tests.support.invoked`)."""
    step = Step("accepted", None, "s", 1, 0, {"position": "1:0", "due": NOON, "by": "ann"})
    sent = Sent((1, 0), "k", {"any name": "v"}, NOON, NOON, NOON, 7)
    letter = DeadLetter("D", (3, 0), "t", "s", "1:0", 3, "nack", "k", {"a": "b"}, b"\xff")
    lines = [
        json_line(Trace("t", sent, (step,), (MessageState("s", 1, "waits", NOON),))),
        json_line([Taken("t", 5, first_due_ms=NOON, last_due_ms=NOON)]),
        replayed(Counts(1, 1, 0, 1), ReplayClock(1, 1_000, 100), 1.0),
        dead_letter(letter),
    ]
    for line in lines:
        check(json.loads(line))
    (trace, (taken,), _, dead) = map(json.loads, lines)
    assert (trace["sent"]["position"], trace["sent"]["due_time"]) == ("1:0", "2023-11-14T22:13:20.000Z")
    assert trace["steps"][0]["details"]["issued_by"] == "ann"
    assert taken["last_due"] == "2023-11-14T22:13:20.000Z"
    assert (dead["position"], dead["payload_base64"]) == ("3:0", "/w==")

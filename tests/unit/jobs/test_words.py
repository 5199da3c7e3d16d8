"""One table of words for options and JSON, which all commands follow."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands.deadletters import as_json as dead_letter
from jobs.commands.jsonform import json_line
from jobs.commands.replay import as_json as replayed
from jobs.commands.run import Counts
from pipeline.client.insight.facts import Sent, Step
from pipeline.client.insight.trace import MessageState, Trace
from pipeline.client.subscribing.deadletters import DeadLetter
from pipeline.moving.pulsar import Taken
from pipeline.service.replay import ReplayClock
from tests.support.invoked import commands
from tests.support.modules import ROOT
from tests.support.words import check, meanings, table

NOON = 1_700_000_000_000


def options() -> Iterator[tuple[str, str, Any]]:
    """Each option of each command: its long name, the command, what Typer knows of it."""
    for name, command in commands():
        for each in command.params:
            if each.param_type_name == "option" and each.name != "help":
                yield each.opts[0], name, each


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


def test_an_earlier_spelling_is_taken_and_named() -> None:
    """A script of last year goes on."""
    others = {word for _, _, option in options() for word in option.opts[1:] if word.startswith("--")}
    text = (ROOT / "docs" / "words.md").read_text(encoding="utf-8").partition("## Earlier spellings\n")[2]
    assert others == set(re.findall(r"^\| `(--[\w-]+)` \|", text.partition("\n## ")[0], re.MULTILINE))


def test_a_word_has_one_kind_in_options_and_in_json() -> None:
    """`--priority` was the name of a property, and `priority` a number. A flag asks for what is named like it."""
    in_json, asked = table("Names in JSON"), table("Options")
    words = {f"{name[2:].replace('-', '_')}{'_ms' * (kind == 'duration')}": kind for name, kind in asked.items()}
    alike = {"condition": "text"}
    both = {name: (alike.get(words[name], words[name]), in_json[name]) for name in words.keys() & in_json.keys()}
    assert len(both) >= 20
    assert {name: kinds for name, kinds in both.items() if kinds[0] not in ("flag", kinds[1])} == {}


@pytest.mark.parametrize("title", ["Options", "Names in JSON"])
def test_a_word_says_one_thing_and_a_thing_is_said_by_one_word(title: str) -> None:
    """A line that says what a word means here and there confesses two meanings; two with one text are two words."""
    means = meanings(title)
    assert {word: text for word, text in means.items() if re.search(r"; (in|of) ", text)} == {}
    assert len(set(means.values())) == len(means)
    stems = [re.sub("_m?s$", "", word) for word in means]
    assert sorted(stems) == sorted(set(stems)), "a word with another unit is another word"


def test_what_needs_a_job_or_a_broker_prints_the_words_of_the_page() -> None:
    """All else is looked at wherever a test runs a command (`tests.support.invoked`)."""
    step = Step("accepted", None, "s", 1, 0, {"position": "1:0", "due": NOON, "by": "ann"})
    sent = Sent((1, 0), "k", {"any name": "v"}, NOON, NOON, NOON, 7)
    letter = DeadLetter("D", (3, 0), "t", "s", "1:0", 3, "nack", "k", {"a": "b"}, b"\xff")
    lines = [
        json_line(Trace("t", sent, (step,), (MessageState("s", 1, "waits", NOON),))),
        json_line([Taken("t", 5, unfit=1, problems=("1:0: why",), first_due_ms=NOON, last_due_ms=NOON)]),
        replayed(Counts(1, 1, 0, 1), ReplayClock(1, 1_000, 100), 1.0),
        dead_letter(letter),
    ]
    for line in lines:
        check(json.loads(line))
    (trace, (taken,), _, dead) = map(json.loads, lines)
    assert (trace["as_sent"]["position"], trace["as_sent"]["due_time"]) == ("1:0", "2023-11-14T22:13:20.000Z")
    assert trace["steps"][0]["details"]["issued_by"] == "ann"
    assert taken["last_due"] == "2023-11-14T22:13:20.000Z"
    assert (dead["position"], dead["payload_base64"]) == ("3:0", "/w==")

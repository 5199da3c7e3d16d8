"""How far a command is that takes longer than two seconds."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import typer

from jobs import cli, groups
from jobs import progress as shown
from jobs.commands.importing import followed
from jobs.progress import on_step, progress
from jobs.terminal import echo
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import Upkeep
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.rounds import maintain
from pipeline.moving.pulsar import Taken
from pipeline.subscriptions.policies import Policies
from schemas import MESSAGES, TABLES
from tests.support.client import message_row, put
from tests.support.invoked import output
from tests.support.words import check

Steps = list[tuple[str, int, int | None]]


def said(text: str) -> Steps:
    """The steps of lines of JSON."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        check(line)
    return [(each["doing"], each["done"], each["total"]) for each in lines]


def test_how_far_a_long_command_is_comes_as_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing for two seconds, and then no more often than that; not on standard output."""
    seconds = iter([0.0, 1.9, 2.0, 3.9, 4.5])
    with progress(clock=lambda: next(seconds)) as step:
        for number in range(4):
            step("files", number, 4)
    printed = capsys.readouterr()
    assert said(printed.err) == [("files", 1, 4), ("files", 3, 4)]
    assert [json.loads(line)["took_s"] for line in printed.err.splitlines()] == [2.0, 4.5]
    assert printed.out == ""


def test_a_command_that_has_no_steps_is_named_while_it_lasts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows how much there is of it."""
    monkeypatch.setattr(shown, "QUIET_S", 0.001)
    looked, seconds = Event(), iter(range(1_000_000))

    def clock() -> float:
        now = next(seconds)
        if now:
            looked.set()
        return float(now)

    with progress("pending", clock):
        assert looked.wait(60)
    assert said(capsys.readouterr().err)[0] == ("pending", 0, None)


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_on_a_terminal_a_bar_says_it_and_leaves_room_for_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has the lines of the command alone, as they are, wherever it leads."""

    def at_once(_seconds: float, late: Callable[[], None]) -> Any:  # noqa: ANN401 - what a timer has
        return SimpleNamespace(start=late, cancel=lambda: None, join=lambda: None)

    terminal, line = Terminal(), "x" * 300
    monkeypatch.setattr(shown, "Timer", at_once)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("pending"):
        before = len(terminal.getvalue())
        echo(line)
        hidden = len(terminal.getvalue())
        on_step("rows", 1, 3)
    text = terminal.getvalue()
    assert "pending" in text[:before]
    assert "rows" in text[hidden:]
    assert "1/3" in text[hidden:]
    assert capsys.readouterr().out == f"{line}\n"


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - Typer's own
    """All commands."""
    for word, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*words, word))
    if not hasattr(command, "commands"):
        yield words, command


def test_each_command_says_how_far_it_is_or_why_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is new does so, too: nobody has to think of it."""
    root, of_their_own = typer.main.get_command(cli.app), set[str]()
    for words, command in leaves(root):
        context, seen = None, list[int]()
        for word, each in zip(("delayline", *words), (root, *[command] * len(words)), strict=True):
            context = typer.Context(each, info_name=word, parent=context)
        assert context is not None
        monkeypatch.setattr(command, "callback", lambda seen=seen: seen.append(len(shown._SHOWN)))
        command.invoke(context)
        if seen == [0]:
            of_their_own.add(words[0])
    assert of_their_own == set(groups.OF_ITS_OWN)


def test_who_follows_is_told_nothing_of_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no end of it."""
    command = dict(leaves(typer.main.get_command(cli.app)))["list",]
    seen = list[int]()
    monkeypatch.setattr(command, "callback", lambda follow: seen.append(len(shown._SHOWN)))  # noqa: ARG005 - as it is called
    for follow in (True, False):
        context = typer.Context(command, info_name="list")
        context.params = {"follow": follow}
        command.invoke(context)
    assert seen == [0, 1]


def test_putting_dead_letters_back_says_how_many_of_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another subscription are not among them."""
    root, steps = str(tmp_path), Steps()
    create_all(root)
    for name in ("s", "x"):
        policies = Policies(ack=True, max_redeliveries=1, dead_letter_topic="dead")
        subscribe(root, Subscription("t", name, policies=policies))
    put(root, MESSAGES, *(letter(entry, "x" if entry == 1 else "s") for entry in range(5)))
    monkeypatch.setattr("pipeline.client.subscribing.deadletters._AT_ONCE", 2)
    monkeypatch.setattr(shown, "on_step", lambda *step: steps.append(step))
    named = ("-t", "t", "-s", "s")
    assert output(root, "dead-letters", "put-back", *named, "--limit", "1") == "1 put back\n"
    assert output(root, "dead-letters", "put-back", *named) == "3 put back\n"
    assert steps == [("put back", 1, 1), ("put back", 2, 3), ("put back", 3, 3)]


def letter(entry: int, subscription: str) -> dict[str, Any]:
    """A dead letter of a subscription."""
    says = {"topic": "t", "subscription": subscription, "position": f"1:{entry}", "redelivery_count": "1"}
    return message_row(3, entry, 0, "dead") | {"properties": {f"delayline.{name}": text for name, text in says.items()}}


def test_an_import_says_how_much_of_what_waits_it_has_looked_at() -> None:
    """A broker may count less than there is."""
    steps = Steps()
    first, last = Taken("a", 10, examined=4), Taken("a", 10, examined=12)
    assert list(followed([first, last, Taken("b", 1, examined=1)], lambda *step: steps.append(step))) == [
        last,
        Taken("b", 1, examined=1),
    ]
    assert steps == [("import a", 4, 10), ("import a", 12, 12), ("import b", 1, 1)]


def test_a_round_of_maintenance_says_at_which_table_it_is(tmp_path: Path) -> None:
    """Also when steps of it fail: without Spark most of them do."""
    create_all(str(tmp_path))
    steps = Steps()
    list(maintain(Warehouse(str(tmp_path)), Upkeep(), 0, (), lambda *step: steps.append(step)))
    assert [done for _, done, _ in steps] == [0, *range(len(TABLES))]
    assert [doing for doing, _, _ in steps[1:]] == [f"maintain {table.name}" for table in TABLES]
    assert {total for _, _, total in steps} == {len(TABLES)}

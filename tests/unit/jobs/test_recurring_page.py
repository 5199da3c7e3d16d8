"""`docs/recurring.md`, typed: each command prints what the page says; and what the command refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from tests.support.invoked import invoke, output, run
from tests.support.modules import ROOT

PAGE = (ROOT / "docs" / "recurring.md").read_text(encoding="utf-8")
ON_WAREHOUSE = re.findall(r"^(delayline (?:schedule|calendar) .*) --warehouse \"\$W\"$", PAGE, re.MULTILINE)
TYPED = re.findall(r"```shell\n(delayline schedule preview [^\n]*)\n```\n\n```\n(.*?)```\n", PAGE, re.DOTALL)


@pytest.mark.parametrize(("line", "printed"), TYPED)
def test_a_preview_of_the_page_prints_what_the_page_says(line: str, printed: str) -> None:
    """Readers compare it with what they see."""
    result = invoke(shlex.split(line)[1:])
    assert (result.exit_code, result.output) == (0, printed)


def test_the_page_has_a_preview_of_each_kind() -> None:
    """A pattern that finds nothing would let the test above pass."""
    assert len(TYPED) >= 3


def test_each_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    """In its order, on a warehouse: what is typed first is listed, and what is deleted is not."""
    root = str(tmp_path / "warehouse")
    assert invoke(["init", "--warehouse", root]).exit_code == 0
    assert len(ON_WAREHOUSE) >= 8
    said = [output(root, *shlex.split(line)[1:]) for line in ON_WAREHOUSE]
    assert said[0] == "standup: set\n"
    assert said[1].splitlines()[1].startswith("standup  reminders  0 9 * * 1-5  Europe/Rome  20")
    assert said[2:4] == ["italy: 2 days\n", "2026-12-25  Christmas\n2026-12-26\n"]
    assert said[4].splitlines()[1] == "italy  2     2026-12-25  2026-12-26"
    assert said[5] == "payroll: set\n"
    assert "cron = 0 9 * * 1-5" in said[6]
    assert [each.partition(",")[0] for each in said[7:]] == [
        *("standup: paused\n", "standup: resumed\n", "standup: sent", "standup: set\n", "standup: deleted\n"),
    ]
    assert [each.split()[0] for each in output(root, "schedule", "list").splitlines()] == ["NAME", "payroll"]


def test_scripts_get_a_schedule_as_json(tmp_path: Path) -> None:
    """With the words of the page of words, and null for what is not known."""
    root = str(tmp_path / "warehouse")
    assert invoke(["init", "--warehouse", root]).exit_code == 0
    options = ["--topic", "t", "--rrule", "FREQ=DAILY;BYHOUR=9", "--from", "2027-01-01", "--key", "k"]
    set_ = ["schedule", "set", "a", "text", *options, "--day-off", "2027-01-06", "--property", "x=1", "--json"]
    made = json.loads(output(root, *set_))
    assert (made["from"], made["key"], made["days_off"]) == ("2027-01-01T00:00:00.000Z", "k", ["2027-01-06"])
    (listed,) = [json.loads(line) for line in output(root, "schedule", "list", "--json").splitlines()]
    assert (listed["schedule"], listed["next_due"], listed["error"]) == ("a", "2027-01-01T09:00:00.000Z", None)
    assert json.loads(output(root, "schedule", "show", "a", "--json"))["rrule"] == "FREQ=DAILY;BYHOUR=9"
    coming = output(root, "schedule", "preview", "a", "--after", "2027-01-05", "-n", "2", "--json").splitlines()
    assert [json.loads(each)["occurrence"][:13] for each in coming] == ["2027-01-05T09", "2027-01-07T09"]
    assert json.loads(output(root, "schedule", "pause", "a", "--json"))["paused"] is True
    assert json.loads(output(root, "schedule", "delete", "a", "--json")) == {"schedule": "a"}


@pytest.mark.parametrize("command", ["show", "pause", "resume", "delete", "run-now", "preview"])
def test_a_schedule_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    """A name is easily mistyped."""
    root = str(tmp_path / "warehouse")
    assert invoke(["init", "--warehouse", root]).exit_code == 0
    result = run(root, "schedule", command, "standpu")
    assert result.exit_code == 1
    assert "there is no schedule 'standpu'" in result.output


def test_a_preview_for_scripts_has_the_words_of_the_page_of_words() -> None:
    """The offset, the local time, when it is due, and the rules."""
    options = [
        "--cron",
        "30 2 * * *",
        "--zone",
        "America/New_York",
        "--after",
        "2027-03-14",
        "-n",
        "1",
        "--jitter",
        "1s",
    ]
    result = invoke(["schedule", "preview", *options, "--json"])
    assert result.exit_code == 0
    assert '"occurrence": "2027-03-14T07:00:00.000Z", "local_time": "2027-03-14 03:00:00"' in result.output
    assert '"utc_offset": "-04:00"' in result.output
    assert '"nominal": "2027-03-14 02:30:00", "rules": ["gap_after"]' in result.output


def test_what_has_ended_says_so() -> None:
    """An empty table would leave open whether something went wrong."""
    result = invoke(["schedule", "preview", "--cron", "* * * * *", "--until", "2026-01-01"])
    assert (result.exit_code, result.output) == (0, "It does not come any more.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cron", "61 * * * *"], "cron = '61 * * * *', allowed: five fields"),
        (["--cron", "* * * * *", "--zone", "Europe/Roma"], "zone = 'Europe/Roma', allowed: the name of a time zone"),
        (["--cron", "* * * * *", "--every", "5s"], "cron, rrule, every_ms = 'cron, every_ms', allowed: exactly one"),
        (["--every", "5ms"], "every_ms = 5, allowed: a whole number in 1000.."),
        (["--rrule", "FREQ=DAILY"], "start = None, allowed: a time: rrule counts from it"),
        (["--rrule", "FREQ=DAILY;BYHOUR=25", "--from", "2026-01-01"], "rrule BYHOUR = '25', allowed: 0..23"),
        (["--every", "5s", "--from", "2026-01-02", "--until", "2026-01-01"], "until = 1767225600000"),
        (["--cron", "* * * * *", "--day-off", "Christmas"], "days_off = 'Christmas', allowed: days as 2026-12-25"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_name(words: list[str], said: str) -> None:
    """With what would be right."""
    result = invoke(["schedule", "preview", *words])
    assert result.exit_code == 2
    assert said in result.output

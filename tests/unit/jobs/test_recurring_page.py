"""`docs/recurring.md`, typed: each command prints what the page says; and what the command refuses."""

from __future__ import annotations

import re
import shlex

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from tests.support.invoked import invoke
from tests.support.modules import ROOT

PAGE = (ROOT / "docs" / "recurring.md").read_text(encoding="utf-8")
TYPED = re.findall(r"```shell\n(delayline schedule preview [^\n]*)\n```\n\n```\n(.*?)```\n", PAGE, re.DOTALL)


@pytest.mark.parametrize(("line", "printed"), TYPED)
def test_a_preview_of_the_page_prints_what_the_page_says(line: str, printed: str) -> None:
    """Readers compare it with what they see."""
    result = invoke(shlex.split(line)[1:])
    assert (result.exit_code, result.output) == (0, printed)


def test_the_page_has_a_preview_of_each_kind() -> None:
    """A pattern that finds nothing would let the test above pass."""
    assert len(TYPED) >= 3


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

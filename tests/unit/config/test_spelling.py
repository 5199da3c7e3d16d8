"""Commands and times as texts of people have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pipeline.config.spelling import command_line, iso_text, subscription_options


@pytest.mark.parametrize(
    ("root", "words", "line"),
    [
        ("/data/w", ["run"], "delayline run --warehouse /data/w"),
        ("/data/w", ["rebuild", "--stage", "all"], "delayline rebuild --warehouse /data/w --stage all"),
        ("/my data", ["policy", "set", "--ttl", "1h"], "delayline policy set --warehouse '/my data' --ttl 1h"),
        (
            "/w",
            ["seek", *subscription_options("or ders", "a$b"), "--earliest"],
            "delayline seek --warehouse /w --topic 'or ders' --subscription 'a$b' --earliest",
        ),
    ],
)
def test_a_command_can_be_pasted(root: str, words: list[str], line: str) -> None:
    """The warehouse stands behind the whole name of the command; what a shell would split or expand is quoted."""
    assert command_line(root, *words) == line


def test_an_instant_is_told_in_utc() -> None:
    """A number is ms; what is less than the last digit is cut off, also before 1970."""
    assert iso_text(1_700_000_000_999, "seconds") == "2023-11-14T22:13:20Z"
    assert iso_text(-1) == "1969-12-31T23:59:59.999Z"
    rome = datetime(2026, 5, 1, 9, 0, 0, 1_999, tzinfo=timezone(timedelta(hours=2)))
    assert iso_text(rome) == "2026-05-01T07:00:00.001Z"
    assert iso_text(datetime(2026, 5, 1, tzinfo=UTC), "microseconds") == "2026-05-01T00:00:00.000000Z"

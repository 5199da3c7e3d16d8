"""Durations, times, positions and properties, as people type them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from jobs.commands import times, values
from jobs.commands.durations import UNITS_MS, BadText, duration_ms, span_ms
from pipeline.config.errors import BadSetting
from pipeline.config.settings import check
from pipeline.config.spelling import spell

NOW = datetime(2026, 11, 27, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("250ms", 250), ("5s", 5_000), ("10m", 600_000), ("6h", 21_600_000), ("7d", 604_800_000), ("0s", 0)),
        *(("1d12h", 129_600_000), ("1.5h", 5_400_000), ("2w", 1_209_600_000), ("5 s", 5_000), ("1m30s", 90_000)),
        *(("PT5S", 5_000), ("P1DT12H", 129_600_000), ("P2W", 1_209_600_000), ("PT0.5S", 500)),
    ],
)
def test_a_duration_is_numbers_with_units_or_iso(text: str, ms: int) -> None:
    """As they are written in a shell history, or printed by other tools."""
    assert duration_ms(text) == ms
    assert span_ms(f"-{text}") == -ms
    assert span_ms(f"+{text}") == span_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "s",
        "-5s",
        "",
        "\u0665s",
        "9999999999999999d",
        "12h1d",
        "1h1h",
        "0.1ms",
        "P",
        "PT",
        "P1H",
        "5S",
        "5M",
        "1h30",
        "5s,",
        ", 5s",
        "1 hour 2 hours",
        "a",
        "1.5",
        "1,5h",
    ],
)
def test_any_other_duration_is_refused_with_the_forms_that_are_taken(text: str) -> None:
    """A guess at a unit would be a wrong delay."""
    with pytest.raises(BadText) as refused:
        duration_ms(text)
    assert refused.value.value == text
    assert all(form in refused.value.allowed for form in ("250ms", "1.5h", "1d12h", "2w", "PT5S"))


@given(st.lists(st.integers(0, 23), min_size=4, max_size=4))
def test_what_is_spelled_in_two_units_is_read_as_it_was_meant(parts: list[int]) -> None:
    """The parts that a text leaves out are less than its last unit."""
    days, hours, minutes, seconds = parts
    ms = days * UNITS_MS["d"] + hours * UNITS_MS["h"] + minutes * UNITS_MS["m"] + seconds * UNITS_MS["s"]
    assert 0 <= ms - duration_ms(spell(ms)) < UNITS_MS["h"]


@pytest.mark.parametrize(
    ("text", "hour"), [("2026-03-01T12:00", 12), ("2026-03-01T12:00:00Z", 12), ("2026-03-01T12:00:00+02:00", 10)]
)
def test_a_time_without_an_offset_is_utc(text: str, hour: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own zone must not decide when a message is due."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    found = times.instant(text)
    monkeypatch.undo()
    time.tzset()
    assert found == datetime(2026, 3, 1, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("now", "2026-11-27T22:30"),
        ("in 1d12h", "2026-11-29T10:30"),
        ("tomorrow", "2026-11-28T00:00"),
        ("tomorrow 9am", "2026-11-28T09:00"),
        ("tomorrow at 12am", "2026-11-28T00:00"),
        ("today 12pm", "2026-11-27T12:00"),
        ("today 18:45", "2026-11-27T18:45"),
        ("tomorrow 9am Europe/Rome", "2026-11-28T08:00"),
        ("tomorrow 9am Asia/Tokyo", "2026-11-29T00:00"),
        ("2026-07-01 12:00 Europe/Rome", "2026-07-01T10:00"),
        ("2026-07-01T12:00[Europe/Rome]", "2026-07-01T10:00"),
        ("2026-07-01 UTC", "2026-07-01T00:00"),
    ],
)
def test_a_time_may_be_in_words_and_in_a_zone(text: str, iso: str) -> None:
    """`today` and `tomorrow` are days of that zone."""
    assert times.instant(text, NOW) == datetime.fromisoformat(f"{iso}+00:00")


def test_the_zone_of_the_machine_is_one_by_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset of today would be wrong half of the year."""
    monkeypatch.setenv("TZ", "Europe/Rome")
    assert times.instant("2026-07-01 12:00 local", NOW).hour == 10
    assert times.instant("2026-12-01 12:00 local", NOW).hour == 11
    time.tzset()
    shown = times.spoken(NOW)
    assert times.spoken(round(NOW.timestamp() * 1_000)) == shown
    monkeypatch.undo()
    time.tzset()
    assert shown == "2026-11-27T22:30:00.000Z (2026-11-27 23:30:00 CET)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("noon", "a time of day names its day"),
        ("17:00", "monday 9am"),
        ("someday", "next friday 17:00"),
        ("tonight at 3am", "tonight"),
        ("31 June", "31 January noon"),
        ("2026-02-30", "tomorrow 9am"),
        ("0001-01-01T00:00:00+02:00", "tomorrow 9am"),
        ("tomorrow 25:00", "tomorrow 9am"),
        ("tomorrow 13pm", "tomorrow 9am"),
        ("in some hours", "1d12h"),
        ("2026-03-01 12:00 Europe/Roma", "the name of a time zone"),
        ("2026-03-01T12:00+01:00 Europe/Rome", "it has both"),
        ("2026-03-29 02:30 Europe/Rome", "the clocks go forward over it"),
        ("2026-10-25 02:30 Europe/Rome", "it comes twice; say +0200 or +0100"),
    ],
)
def test_a_time_that_does_not_exist_is_refused(text: str, says: str) -> None:
    """Also one that an offset moves out of the calendar, and one that comes twice."""
    with pytest.raises(BadText, match=says.replace("+", r"\+")):
        times.instant(text, NOW)


@pytest.mark.parametrize("text", ["\udcff:0", "shop", "shop:x", ":1", "a\nb:1"])
def test_the_id_of_a_message_is_a_text_and_a_number(text: str) -> None:
    """Bytes that are no UTF-8 were an error of Python's own."""
    with pytest.raises(BadText):
        values.handle(text)


def test_properties_are_split_at_the_first_equals_sign() -> None:
    """Values hold what they like; names do not."""
    assert values.pairs(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for text in ("a", "=b"):
        with pytest.raises(BadText):
            values.pairs([text])


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0s"), (999, "0s"), (-61_500, "1m 1s"), (3_600_000, "1h"), (93_784_000, "1d 2h")]
)
def test_a_span_is_spelled_with_two_units(ms: int, text: str) -> None:
    """People read two; the rest is noise."""
    assert spell(ms) == text


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("max_delay_ms", 1_044_267_461_273, "max_delay_ms = 1044267461273 (12086d 10h), allowed: 1..86400000 (1d)"),
        ("run.retain_ms", 0, "run.retain_ms = 0, allowed: 1..86400000 (1d)"),
        ("clients", 1_044_267_461_273, "clients = 1044267461273, allowed: 1..86400000"),
    ],
)
def test_an_error_says_in_words_how_long_a_span_is(field: str, value: int, text: str) -> None:
    """Nobody divides twelve digits of ms in the head."""
    with pytest.raises(BadSetting) as refused:
        check(field, value, 1, 86_400_000)
    assert str(refused.value) == text

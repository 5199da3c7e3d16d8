"""Statistics of files as anybody may have written them: what cannot be understood is not known, and nothing fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.delta.logs.entries import rows_of
from pipeline.delta.logs.filestats import count, first_ms, known, last_ms, span, span_ms
from pipeline.delta.reading.messages import Bounds
from pipeline.maintenance.layout import LaidOut, gathered, together

YEAR_1, YEAR_9999 = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"


def stats(first: object, last: object, **more: object) -> str:
    """What a log says of a file with one row."""
    statistics: dict[str, Any] = {"numRecords": 1, "nullCount": {"due_time": 0, "ledger_id": 0}}
    statistics["minValues"] = {"due_time": first, "ledger_id": 3}
    statistics["maxValues"] = {"due_time": last, "ledger_id": 4}
    return json.dumps(statistics | more)


STRANGE = {
    "nanoseconds written as microseconds": stats("+58865-03-01T10:00:00Z", "+58865-03-01T10:00:00Z"),
    "a year before the first one": stats("-0044-03-15T12:00:00Z", "-0044-03-15T12:00:00Z"),
    "the last one far off": stats("2026-11-23T10:00:00Z", "+10000-01-01T00:00:00Z"),
    "no time": stats("soon", "later"),
    "a number": stats(17, 18),
    "NaN": stats(float("nan"), float("nan")),
    "null": stats(None, None),
    "the wrong way round": stats(YEAR_9999, YEAR_1),
    "no ends": json.dumps({"numRecords": 1}),
    "ends that are no object": stats(YEAR_1, YEAR_1, minValues=[], maxValues="?"),
    "no object": "[1, 2]",
    "not JSON": '{"numRecords": 1, "minValues": {"due_ti',
    "empty": "",
}


@pytest.mark.parametrize("text", [*STRANGE.values(), None], ids=[*STRANGE, "none"])
def test_statistics_that_say_nothing_are_one_file_s_matter(text: str | None) -> None:
    """One such file ended every round of maintenance; as it may hold anything, it is read whenever something may be."""
    with pytest.raises(KeyError):
        span_ms(text, "due_time")
    assert Bounds.of_file({"stats": text}) == Bounds()
    file = {"path": "p", "size": 1, "stats": text, "tags": None}
    assert LaidOut.of(file) is None
    assert list(together([file, file])) == [[file, file]]
    assert gathered([file], 100) == []
    assert rows_of([file]) in (1, None)


@pytest.mark.parametrize(("year", "ms"), [(YEAR_1, -62_135_596_800_000), (YEAR_9999, 253_402_300_799_999)])
@pytest.mark.parametrize("zone", ["Z", "+00:00", ""])
def test_the_ends_of_the_calendar_are_times_like_others(year: str, ms: int, zone: str) -> None:
    """Python's own conversions overflow there; a time without a zone is UTC."""
    text = year.removesuffix("Z") + zone
    assert span_ms(stats(text, text), "due_time") == (ms, ms)
    assert Bounds.of_file({"stats": stats(text, text)}) == Bounds(3, 4, ms, ms + 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "3", 3.5, None])
def test_a_ledger_that_is_no_number_bounds_nothing(value: object) -> None:
    """NaN is neither below nor above: a file with such bounds would never be read, and its messages would be lost."""
    with pytest.raises(KeyError):
        span(stats(YEAR_1, YEAR_1, minValues={"due_time": YEAR_1, "ledger_id": value}), "ledger_id")


@pytest.mark.parametrize("number", [-1, 1.5, float("nan"), True, "7", None, []])
def test_a_count_that_is_none_is_not_known(number: object) -> None:
    """A sum of rows with NaN in it would be NaN."""
    text = json.dumps({"numRecords": number})
    assert count(text) is None
    assert rows_of([{"stats": text}, {"stats": '{"numRecords": 2}'}]) is None
    assert rows_of([{"stats": '{"numRecords": 3}'}, {"stats": '{"numRecords": 2}'}]) == 5


def test_a_file_that_does_not_say_its_first_time_is_given_one() -> None:
    """Whoever asks says what is safe: before all others, or at the beginning of a sort."""
    text = stats(YEAR_9999, YEAR_9999)
    assert (first_ms(text, "due_time", 0), first_ms("{}", "due_time", 5)) == (253_402_300_799_999, 5)


def test_a_column_of_nulls_has_no_last_time() -> None:
    """That is not the same as a last time that nobody knows."""
    assert last_ms('{"numRecords": 2, "nullCount": {"at": 2}}', "at", 9) == 0
    assert last_ms('{"numRecords": 2, "nullCount": {"at": 1}}', "at", 9) == 9
    assert last_ms('{"numRecords": 2, "maxValues": {"at": "1970-01-01T00:00:07.000Z"}}', "at", 9) == 7_000
    assert known("null") == {}

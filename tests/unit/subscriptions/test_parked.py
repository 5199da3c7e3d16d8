"""In which segments messages wait, as a start of ingest finds it out by the statistics of files."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the log of messages needs requirements/all.lock")

from pipeline.delta.reading.messages import Bounds, MessageFile
from pipeline.subscriptions.markers import _DENSE, _parked_by_files

SEGMENT_MS = 1_000


def file(first: int, last: int, rows: int) -> MessageFile:
    """A file whose messages are due from one segment to another."""
    return MessageFile(f"{first}-{last}", Bounds(first_due=first * SEGMENT_MS, last_due=last * SEGMENT_MS + 1), rows)


@pytest.mark.parametrize(
    ("files", "loaded", "segments", "read"),
    [
        ([file(5, 5, 1)], 0, set(), ["5-5"]),
        ([file(5, 5, _DENSE)], 0, {5}, []),
        ([file(5, 7, 3 * _DENSE), file(7, 9, 3 * _DENSE - 1)], 0, {5, 6, 7}, ["7-9"]),
        ([file(5, 8, 4 * _DENSE)], 7, {7, 8}, []),
        ([file(5, 8, 4 * _DENSE - 1)], 7, set(), ["5-8"]),
        ([MessageFile("unknown", Bounds(), 0)], 0, set(), ["unknown"]),
    ],
    ids=["few rows", "many", "two files", "loaded in part", "loaded, few", "no statistics"],
)
def test_only_files_with_few_rows_a_segment_are_read(
    files: list[MessageFile], loaded: int, segments: set[int], read: list[str]
) -> None:
    """Ten billion messages wait in twenty thousand files; their log says where."""
    found, sparse = _parked_by_files(files, loaded * SEGMENT_MS, SEGMENT_MS)
    assert found == segments
    assert [each.path for each in sparse] == read


def test_a_file_of_a_whole_year_is_read_whatever_it_holds() -> None:
    """Segments are not written down one by one for all of the time that somebody's statistics span."""
    year: dict[str, Any] = {"first": 0, "last": 366 * 86_400, "rows": 5_000_000}
    assert _parked_by_files([file(**year)], 0, SEGMENT_MS) == (frozenset(), [file(**year)])

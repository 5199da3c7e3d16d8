"""Which messages are sorted anew: each time writes them again."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("delta", reason="maintenance needs requirements/all.lock")

from pipeline.maintenance.layout import LaidOut, crowded, gathered, together

ANY_SIZE = 1 << 40


def file(number: int, first: int, last: int, run: str = "", size: int = 10) -> LaidOut:
    """A file of a run of its own, when nothing else is said."""
    return LaidOut(f"f{number}", size, 5, run or f"f{number}", first, last)


def wide(count: int) -> list[LaidOut]:
    """Files that all span the same time."""
    return [file(number, 0, 1_000) for number in range(count)]


def test_files_that_all_span_the_same_time_are_sorted() -> None:
    """A release would open every one of them."""
    assert crowded(wide(9), 0, ANY_SIZE) == wide(9)


def test_few_files_are_left_alone() -> None:
    """To open eight files costs less than to write them again."""
    assert crowded(wide(8), 0, ANY_SIZE) == []


def test_files_that_follow_each_other_are_left_alone() -> None:
    """So they lie when messages are due soon after they came."""
    assert crowded([file(n, 10 * n, 10 * n + 12) for n in range(100)], 0, ANY_SIZE) == []


def test_files_that_were_sorted_together_count_as_one() -> None:
    """Or what is due at one instant, and lies in many files, would be written again with each round."""
    assert crowded([file(n, 7, 7, run="sorted") for n in range(50)], 0, ANY_SIZE) == []
    mixed = [file(n, 7, 7, run="sorted") for n in range(50)] + wide(8)
    assert {each.run for each in crowded(mixed, 0, ANY_SIZE)} == {"sorted", *(each.run for each in wide(8))}


def test_of_a_large_table_the_widest_files_are_sorted_first() -> None:
    """Those that lie in every release's way; the others wait for the next round, and two are the least that pays."""
    files = [file(n, n, 1_000) for n in range(20)]
    assert crowded(files, 0, 45) == files[:4]
    assert crowded(files, 0, 19) == []


def test_what_is_due_before_the_next_round_is_left_as_it_lies() -> None:
    """It is gone before it would have paid; what lies ahead counts, even of files that have begun."""
    assert crowded(wide(9), 1_001, ANY_SIZE) == []
    assert crowded(wide(9), 1_000, ANY_SIZE) == wide(9)
    past = [file(n, 0, 500 if n < 5 else 2_000) for n in range(9)]
    assert crowded(past, 600, ANY_SIZE) == []


def test_the_place_where_most_overlap_comes_first() -> None:
    """The next one is the next round's."""
    here, there = ([file(at + n, at, at + 5) for n in range(count)] for at, count in ((0, 9), (100, 12)))
    assert crowded([*here, *there], 0, ANY_SIZE) == there


def test_a_file_that_says_nothing_of_its_rows_is_left_alone() -> None:
    """Nobody could say that the new files have the same."""
    file = {"path": "f", "size": 1, "tags": None}
    span = '"minValues":{"due_time":"2024-01-01T00:00:00.000Z"},"maxValues":{"due_time":"2024-01-01T00:00:01.000Z"}'
    assert LaidOut.of(file | {"stats": f"{{{span}}}"}) is None
    assert LaidOut.of(file | {"stats": None}) is None
    found = LaidOut.of(file | {"stats": f'{{"numRecords":3,{span}}}', "tags": {"delayline.run": "r"}})
    assert found is not None
    assert (found.rows, found.run, found.last - found.first) == (3, "r", 1_000)


MIB = 1 << 20


def listed(number: int, size: int, first: str | None = None) -> dict[str, Any]:
    """A file as the log has it."""
    stats = {"numRecords": 5, "minValues": {"due_time": first}, "maxValues": {"due_time": first}} if first else {}
    return {"path": f"f{number}", "size": size, "stats": json.dumps(stats), "tags": None}


def test_small_files_are_merged_up_to_64_mib() -> None:
    """Larger ones are not worth it: each time writes all of it again. One alone is left as it is."""
    files = [listed(number, 15 * MIB) for number in range(9)]
    assert [len(each) for each in together(files)] == [4, 4]
    assert list(together(files[:1])) == []


def test_files_whose_messages_are_due_soon_after_each_other_are_merged() -> None:
    """A release needs those of one time."""
    days = [listed(number, 15 * MIB, f"2023-11-{1 + number * 7 % 10:02}T00:00:00.000Z") for number in range(8)]
    spans = [sorted(str(each["stats"]) for each in some) for some in together(days)]
    assert len(spans) == 2
    assert spans[0][-1] < spans[1][0]


def test_a_byte_is_written_anew_each_time_its_file_doubles() -> None:
    """However many small files come: few stay, and what is written is no multiple of what came but its logarithm."""
    files, written, commits = list[dict[str, Any]](), 0, 5_000
    for number in range(commits):
        files.append(listed(number, 10))
        if chosen := gathered(files, 1 << 40):
            total = sum(file["size"] for file in chosen)
            files = [file for file in files if file not in chosen] + [listed(-number, total)]
            written += total
    assert len(files) < 16 + 12
    assert written < 10 * commits * 10


def test_few_files_are_not_gathered_and_many_no_more_than_may_be() -> None:
    """The smallest first; a file beside which the others are small waits."""
    assert gathered([listed(number, 10) for number in range(15)], 1_000) == []
    assert gathered([*(listed(number, 10) for number in range(15)), listed(15, 1_000)], 10_000) == []
    sizes = [file["size"] for file in gathered([listed(number, 10 + number) for number in range(40)], 100)]
    assert sizes == [10, 11, 12, 13, 14, 15, 16]
    near = [*(listed(number, 48) for number in range(40)), listed(40, 1)]
    assert [file["size"] for file in gathered(near, 100)] == [1, 48, 48]
    assert gathered([*(listed(number, 50) for number in range(40)), listed(40, 1)], 100) == []

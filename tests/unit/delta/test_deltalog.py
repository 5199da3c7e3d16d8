"""Commits of a Delta table, read from its log, also after maintenance has cut it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.delta.logs.entries import actions, between, newest, reaches_back
from pipeline.storage.files import Files


@pytest.fixture
def files() -> Files:
    """Those of this machine, without a JVM."""
    return Files()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table whose log has the versions 5 to 8; those before were cut."""
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in range(5, 9):
        (folder / f"{version:020d}.json").touch()
    return str(tmp_path)


@pytest.mark.parametrize("known", [-1, 0, 3, 4, 5, 7, 8])
def test_the_newest_version_is_found_from_whatever_was_known(files: Files, table: str, known: int) -> None:
    """Who looked before the log was cut, and took its old version for the newest, would miss messages for ever."""
    assert newest(files, table, known) == 8


@pytest.mark.parametrize(("known", "reached"), [(3, False), (4, True), (5, True), (8, True)])
def test_a_log_that_begins_later_than_what_was_known_is_noticed(
    files: Files,
    table: str,
    known: int,
    reached: bool,  # noqa: FBT001 - the answer
) -> None:
    """What happened in between is told by no entry; it has to be read from the whole."""
    assert reaches_back(files, table, known) is reached


@pytest.mark.parametrize(("known", "late"), [(1, 2), (1, 3), (2, 3), (3, 4)])
def test_a_commit_that_came_too_late_is_nobody_s(
    files: Files,
    table: str,
    known: int,
    late: int,
) -> None:
    """It lies below the beginning of the log. Who took it for news would go on there, and commit where nobody reads."""
    log = Path(table, "_delta_log")
    (log / f"{late:020d}.json").touch()
    (log / f"{5:020d}.checkpoint.parquet").touch()
    assert newest(files, table, known) == 8
    assert reaches_back(files, table, known) is False
    assert reaches_back(files, table, 4) is True


def test_a_text_in_the_statistics_does_not_end_a_line(files: Files, table: str) -> None:
    """Other writers leave these characters as they are, and Python takes them for ends of lines."""
    entry = [{"add": {"path": "p", "stats": "a\u2028b\u2029c\x85d"}}, {"commitInfo": {}}]
    text = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in entry)
    Path(table, f"_delta_log/{8:020d}.json").write_text(text, encoding="utf-8", newline="")
    assert actions(files, table, 8) == entry


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        ((5, -1), (9, -1), ["a", "b c", "d"]),
        ((5, 0), (9, -1), ["b c", "d"]),
        ((5, -1), (5, 0), ["a"]),
        ((6, -100), (8, -100), []),
        ((8, -1), (8, 0), ["d"]),
        ((9, -1), (9, -1), []),
        ((4, -1), (9, -1), None),
        ((5, -1), (10, -1), None),
        ((5, -1), (9, 0), None),
    ],
)
def test_a_batch_takes_the_files_between_its_ends(
    files: Files,
    table: str,
    begin: tuple[int, int],
    end: tuple[int, int],
    found: list[str] | None,
) -> None:
    """A commit that took rows out, or only laid them out anew, gives none; without an entry nobody knows."""
    added = {path: {"add": {"path": path, "dataChange": path != "merged"}} for path in ("a", "b%20c", "d", "merged")}
    entries: dict[int, list[Any]] = {
        5: [added["a"], added["b%20c"]],
        6: [added["merged"]],
        8: [{"commitInfo": {}}, added["d"]],
    }
    entries[7] = [{"remove": {"path": "a", "dataChange": True}}, {"add": {"path": "rest", "dataChange": True}}]
    for version, lines in entries.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        Path(table, f"_delta_log/{version:020d}.json").write_text(text, encoding="utf-8")
    taken = between(files, table, begin, end)
    assert (taken if taken is None else [each["path"] for each in taken]) == found

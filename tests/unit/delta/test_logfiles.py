"""Where a log begins, and which of its entries can be read."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="the errors of the stages need requirements/all.lock")

from pipeline.config.errors import BrokenVersion
from pipeline.delta.logs.entries import actions_of, first_version, log_files


def log(*entries: int, checkpoints: tuple[int, ...] = (), kind: str = "checkpoint.parquet") -> list[str]:
    """The names in the folder of a log."""
    names = [*(f"{version:020d}.json" for version in entries), "_last_checkpoint", ".x.crc", "notes.txt"]
    return names + [f"{version:020d}.{kind}" for version in checkpoints]


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (log(0, 1, 2), 0),
        (log(0, 1, 2, 3, checkpoints=(2,)), 0),
        (log(50, 51, 52, checkpoints=(50,)), 50),
        (log(7, 50, 51, 52, checkpoints=(50,)), 50),
        (log(49, 50, 51, 52, checkpoints=(50,)), 50),
        (log(47, 49, 50, 51, 100, checkpoints=(50, 100)), 100),
        (log(48, 49, 50, 51, 52, checkpoints=(50, 52)), 50),
        (log(57, 58, 59, 60, checkpoints=(60,)), 60),
        (log(5, 6, 7), 5),
        (log(49, 50, 51, checkpoints=(50,), kind="checkpoint.0000000001.0000000002.parquet"), 50),
        (log(0), 0),
    ],
)
def test_a_log_begins_where_nothing_is_missing_any_more(names: list[str], first: int) -> None:
    """An entry that somebody who was too late left below a cut is no beginning: vacuum would count files from it."""
    assert first_version(log_files(reversed(names))) == first


def entry(*actions: object, end: str = "\n") -> str:
    """The text of an entry."""
    return "\n".join(json.dumps(each) for each in actions) + end


OURS = {"commitInfo": {"engineInfo": "delayline"}}
WHOLE = entry(OURS, {"add": {"path": "a"}})


@pytest.mark.parametrize(
    "text",
    [
        *["", "\n", "\0" * 512, "[]\n", "1\n"],
        *[WHOLE[:-1], WHOLE[:-3], WHOLE[:30], WHOLE[: WHOLE.index("\n")], WHOLE + "\0" * 8],
    ],
)
def test_a_version_that_was_cut_is_an_error_and_not_nothing(text: str) -> None:
    """After a power cut a file may be empty, shorter or full of zeros; taken for no actions it would lose a batch."""
    with pytest.raises(BrokenVersion) as refused:
        actions_of(text, "/w/deliveries", 17)
    assert (refused.value.table, refused.value.version) == ("deliveries", 17)
    assert refused.value.entry == f"/w/deliveries/_delta_log/{17:020d}.json"


@pytest.mark.parametrize("end", ["", "\n"])
def test_others_may_leave_out_the_last_newline(end: str) -> None:
    """delta-rs does."""
    lines = [{"commitInfo": {"engineInfo": "delta-rs"}}, {"add": {"path": "a"}}]
    assert actions_of(entry(*lines, end=end), "/w/inbox", 1) == lines

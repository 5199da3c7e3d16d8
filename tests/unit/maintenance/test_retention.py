"""What the statistics of a file say of its rows: none go, all go, or that they have to be looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="retention needs requirements/all.lock")

from pipeline.maintenance.exemptions import ExemptRows, OpenPositions
from pipeline.maintenance.retention import _gone_by_log, _is_over, _was_left_out
from pipeline.maintenance.rewrite import Expired
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to, read_mark
from schemas import CANCELLED, COMMANDS, MESSAGES

TOP_MS, LAST_LEDGER, ROWS = 5_000, 7, 10
LIMITS = {"due_time": TOP_MS, "ledger_id": LAST_LEDGER}


def file(due_ms: tuple[int, int] = (0, 4_000), ledgers: tuple[int, int] = (3, 5), **more: object) -> dict[str, Any]:
    """The entry of a file in the log: due times (ms), ledgers, and batches 2 to 4."""
    ends = [{"ledger_id": ledgers[end], "due_time": _text(due_ms[end]), "batch_id": 2 + 2 * end} for end in (0, 1)]
    return {"path": "a", "stats": json.dumps({"numRecords": ROWS, "minValues": ends[0], "maxValues": ends[1], **more})}


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        (file(), ROWS),
        (file(due_ms=(TOP_MS + 1, 9_000)), 0),
        (file(ledgers=(LAST_LEDGER + 1, 9)), 0),
        (file(due_ms=(0, TOP_MS + 1)), None),
        (file(due_ms=(0, TOP_MS)), None),
        (file(due_ms=(0, TOP_MS - 1)), ROWS),
        (file(ledgers=(3, LAST_LEDGER)), ROWS),
        (file(ledgers=(3, LAST_LEDGER + 1)), None),
        (file(numRecords=None), None),
        (file(maxValues={}), None),
        ({"path": "a", "stats": None}, None),
    ],
)
def test_a_file_goes_or_stays_unread_when_its_statistics_are_clear(entry: Mapping[str, Any], count: int | None) -> None:
    """Delta cuts times to milliseconds: one that ends with the last of them may have a row that is later."""
    assert _gone_by_log(Expired.within(MESSAGES, OpenPositions(), LIMITS), entry) == count


def test_rows_that_may_stay_are_looked_at() -> None:
    """What a stage has to read, what is open, and what has a retention of its own; not where none is old."""
    young = file(due_ms=(TOP_MS + 1, 9_000))
    for old, batches, count in (
        (Expired.within(MESSAGES, OpenPositions(), LIMITS), (3,), None),
        (Expired.within(MESSAGES, OpenPositions(), LIMITS), (1, 5), ROWS),
        (Expired.within(MESSAGES, OpenPositions(ledgers=[4]), LIMITS), (), None),
        (Expired.within(MESSAGES, OpenPositions(ledgers=[2, 6]), LIMITS), (), ROWS),
        (Expired.within(MESSAGES, OpenPositions(), LIMITS, ExemptRows(("t",), 0)), (), None),
        (Expired(MESSAGES, "ledger_id = 0"), (), None),
        (Expired.within(COMMANDS, OpenPositions(), LIMITS), (), None),
    ):
        rows = replace(old, batches=batches)
        assert _gone_by_log(rows, file()) == count
        assert _gone_by_log(rows, young) == (0 if rows.limits else None)


def test_segments_and_cancelled_rows_are_told_as_their_conditions_do() -> None:
    """NULL is not less than anything: a marker row has no due time, a chunk no marker."""
    mark = SettledMark(TOP_MS, LAST_LEDGER, 3)
    instants = pa.array([TOP_MS, TOP_MS + 1, None], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "last_due": instants.take(pa.array([0, 1, 2, 2, 2, 2])),
            "marker": pa.array([None, None, 2, 3, 2, None], pa.int64()),
            "first_ledger": pa.array([None, None, None, None, 1, None], pa.int64()),
        }
    )
    assert _is_over(mark, rows).fill_null(False).to_pylist() == [True, False, True, False, False, False]  # noqa: FBT003
    reasons = pa.table(
        {"reason": [CANCELLED, CANCELLED, "message_missing", None], "due_time": instants.take(pa.array([0, 1, 0, 0]))}
    )
    assert _was_left_out(TOP_MS, reasons).fill_null(False).to_pylist() == [True, False, False, False]  # noqa: FBT003


def test_a_mark_that_another_round_has_raised_meanwhile_stays(tmp_path: Path) -> None:
    """Nothing holds two rounds apart in an object store. Rows between the marks are gone, and would be looked for."""
    files, root, slow, quick = Files(), str(tmp_path), SettledMark(1_000, 3, 3), SettledMark(2_000, 5, 5)
    assert [raise_to(files, root, mark) for mark in (quick, slow)] == [quick, quick]
    assert read_mark(files, root) == quick


def test_a_mark_that_an_earlier_version_has_noted_counts_until_a_higher_one_is(tmp_path: Path) -> None:
    """A warehouse is brought up to date by its first round."""
    files, root = Files(), str(tmp_path)
    assert read_mark(files, root) == SettledMark()
    files.write(f"{root}/messages/_settled.json", SettledMark(1_000, 3, 3).dumps())
    assert read_mark(files, root) == SettledMark(1_000, 3, 3)
    raise_to(files, root, SettledMark(2_000, 5, 5))
    assert read_mark(files, root) == SettledMark(2_000, 5, 5)

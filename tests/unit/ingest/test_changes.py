"""Which versions of the inbox are no appends, and what their log entries say of their rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.delta.logs.change import Change
from pipeline.ingest.changes import refused
from pipeline.ingest.plan import Plan
from state.units import Ms

SPARK_KEYS = '["(message_key#12 = message_key#345)"]'


def version(
    operation: str, added: int = 1, removed: int = 1, predicate: str | None = SPARK_KEYS, **metrics: int
) -> Change | None:
    """A version with so many files."""
    metrics_of = {name: str(number) for name, number in metrics.items()}
    info = {"operation": operation, "operationParameters": {"predicate": predicate}, "operationMetrics": metrics_of}
    kinds: list[dict[str, Any]] = [{"add": {}}] * added + [{"remove": {}}] * removed
    files = [
        {kind: {"path": f"{number}.parquet", "dataChange": True}} for number, each in enumerate(kinds) for kind in each
    ]
    return Change.of(7, [{"commitInfo": info}, *files])


@pytest.mark.parametrize(
    "found",
    [
        version("WRITE", removed=0),
        version("MERGE", removed=0, numTargetRowsInserted=3),
        version("DELETE"),
        version("DELETE", added=0),
        version("MERGE", numTargetRowsInserted=0, numTargetRowsUpdated=0),
        Change.of(7, [{"add": {"path": "a", "dataChange": False}}, {"remove": {"path": "b", "dataChange": False}}]),
    ],
    ids=["append", "merge of new rows", "rows deleted", "files deleted", "merge that deletes", "compaction"],
)
def test_appends_and_versions_without_new_rows_are_passed_over(found: Change | None) -> None:
    """Most of all our own: retention takes files out, and a compaction changes nothing."""
    assert found is None


@pytest.mark.parametrize(
    ("found", "merged", "rows"),
    [
        (version("MERGE", numTargetRowsInserted=2, numTargetRowsUpdated=3), True, "3"),
        (version("MERGE", numTargetRowsInserted=2, numTargetRowsUpdated=3), False, "5"),
        (version("MERGE", num_target_rows_inserted=2, num_target_rows_updated=3), True, "3"),
        (version("UPDATE", numUpdatedRows=4), False, "4"),
        (version("UPDATE", num_updated_rows=4), False, "4"),
        (version("WRITE"), False, "unknown"),
        (version("RESTORE", removed=0), False, "unknown"),
        (
            Change.of(7, [{"add": {"path": "a", "dataChange": True}}, {"remove": {"path": "b", "dataChange": True}}]),
            False,
            "unknown",
        ),
    ],
)
def test_what_is_left_out_is_counted(found: Change | None, merged: bool, rows: str) -> None:  # noqa: FBT001 - a case
    """As Spark and as delta-rs count; a version that says nothing of itself is named all the same."""
    assert found is not None
    (row,) = refused([found], [7] if merged else []).to_pylist()
    said = dict(row["properties"])
    assert (row["reason"], said["version"], said["operation"], said["rows"]) == (
        "not_an_append",
        "7",
        found.operation,
        rows,
    )
    assert row["topic"] is None
    assert said["remedy"]


def test_nothing_is_said_of_a_merge_whose_rows_are_all_taken() -> None:
    """Rows that matched and were deleted are no news, either."""
    found = version("MERGE", numTargetRowsInserted=2, numTargetRowsUpdated=0)
    assert found is not None
    assert refused([found], [7]).num_rows == 0


@pytest.mark.parametrize(
    ("predicate", "keys"),
    [
        (SPARK_KEYS, ("message_key",)),
        ('["((topic#1 = topic#2) AND (deliver_after_ms#3L = deliver_after_ms#4L))"]', ("topic", "deliver_after_ms")),
        ('["(topic#1 = topic#2)","(message_key#3 = message_key#4)"]', ("topic", "message_key")),
        ("t.message_key = s.message_key", ("message_key",)),
        ("target.topic = source.topic AND target.message_key = source.message_key", ("topic", "message_key")),
        ('["(message_key#12 <=> message_key#345)"]', ()),
        ('["(topic#1 = message_key#2)"]', ()),
        ('["((topic#1 = topic#2) OR (message_key#3 = message_key#4))"]', ()),
        ('["((topic#1 = topic#2) AND (publish_time#3 > 5))"]', ()),
        ('["(properties#1[id] = properties#2[id])"]', ()),
        ("", ()),
        (None, ()),
    ],
)
def test_only_equal_columns_tell_new_rows_from_changed_ones(predicate: str | None, keys: tuple[str, ...]) -> None:
    """Whatever else a condition does, a new row could have the keys of one that was there."""
    found = version("MERGE", predicate=predicate, numTargetRowsInserted=1, numTargetRowsUpdated=1)
    assert found is not None
    assert found.keys == keys
    assert found.is_separable is bool(keys)


def test_notes_name_merged_versions_as_they_always_did() -> None:
    """A batch that was begun before an update of this project is repeated after it."""
    plan = Plan(Ms(1), (2, 3), 4, 5, 6, 7, 8, 9, (10, 11), (12, 13), merged=(14, 15))
    note = plan.as_note()
    assert list(note)[10:12] == ["told", "left"]
    assert note["told"] == (14, 15)
    assert Plan.of_note(json.loads(json.dumps(note))) == plan

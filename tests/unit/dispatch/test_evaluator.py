"""The process of guards: it answers within its bounds, and one that dies or hangs is another one the next time."""

from __future__ import annotations

from collections.abc import Iterator
from errno import ENOMEM
from pathlib import Path
from select import select
from unittest.mock import Mock, patch

import pytest

pytest.importorskip("deltalake", reason="guards need requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from deltalake import write_deltalake

from pipeline.dispatch.evaluator import Evaluator, _NoProcess
from pipeline.subscriptions.guards import NUMBER, SEEN, Guard, GuardFailed, Starting, seen

ROWS = 2_000
FOREVER = (
    "number IN (SELECT a.number FROM due a, due b, due c, due d WHERE a.number * b.number + c.number * d.number < 0)"
)
HUGE = "length(repeat(message_key, 30000000)) > 0"
LIMIT_MS = 2_500


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    """One for all tests."""
    made = Evaluator(LIMIT_MS, 256 << 20)
    yield made
    made.close()


def asked(evaluator: Evaluator, condition: str, **tables: tuple[str, int]) -> list[int]:
    """The numbers of the messages that meet a condition."""
    columns = {name: pa.nulls(ROWS, SEEN.field(name).type) for name in SEEN.names}
    columns |= {NUMBER: pa.array(range(ROWS)), "message_key": pa.array([str(each) for each in range(ROWS)])}
    guard = Guard(condition, {name: path for name, (path, _) in tables.items()})
    rows = seen(columns, guard.columns())
    found: list[int] = evaluator.met_by(guard, rows, dict(tables.values())).tolist()
    return found


def test_it_answers_with_tables_at_the_versions_that_are_asked_for(evaluator: Evaluator, tmp_path: Path) -> None:
    """Also when a table has moved on."""
    path = str(tmp_path / "paid")
    for order in ("3", "4"):
        write_deltalake(path, pa.table({"order_id": [order]}), mode="append")
    condition = "message_key IN (SELECT order_id FROM paid)"
    assert asked(evaluator, condition, paid=(path, evaluator.version(path))) == [3, 4]
    assert asked(evaluator, condition, paid=(path, 0)) == [3]
    with pytest.raises(GuardFailed):
        evaluator.version(str(tmp_path / "none"))
    assert asked(evaluator, "message_key = '7'") == [7]


def test_what_it_says_of_an_error_has_no_value_of_a_row(
    evaluator: Evaluator, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in what is told of the guard nor in what a dying engine prints into the log of the job."""
    for condition, kind in (("CAST(message_key || 'a' AS BIGINT) > 3", "a value cannot be cast"), (HUGE, "died")):
        with pytest.raises(GuardFailed, match=kind) as failed:
            asked(evaluator, condition)
        assert "1999a" not in str(failed.value)
    assert capfd.readouterr().err == ""


def test_a_guard_that_never_ends_fails_in_time(evaluator: Evaluator) -> None:
    """And the next one works."""
    with pytest.raises(GuardFailed, match="guard_timeout_ms") as failed:
        asked(evaluator, FOREVER)
    assert LIMIT_MS <= failed.value.took_ms < 4 * LIMIT_MS
    assert asked(evaluator, "message_key = '7'") == [7]


def test_a_guard_that_takes_too_much_memory_fails_alone(evaluator: Evaluator) -> None:
    """The process of dispatch lives, and the next one works."""
    with pytest.raises(GuardFailed):
        asked(evaluator, HUGE)
    assert asked(evaluator, "message_key = '7'") == [7]


def is_up(evaluator: Evaluator) -> bool:
    """Whether the process has started, when it says something or ends."""
    assert evaluator._process is not None
    assert evaluator._process.stdout is not None
    select([evaluator._process.stdout], [], [])
    return evaluator.ready()


def test_who_is_not_patient_waits_for_no_start() -> None:
    """Neither the first time nor when the process has died: others have no guard, and are on time."""
    made = Evaluator(LIMIT_MS, 256 << 20, patient=False)
    try:
        assert not made.ready()
        assert is_up(made)
        with pytest.raises(GuardFailed) as failed:
            asked(made, HUGE)
        assert failed.value.ended
        with pytest.raises(Starting):
            asked(made, "message_key = '7'")
        assert not made.ready()
        assert is_up(made)
        assert asked(made, "message_key = '7'") == [7]
    finally:
        made.close()


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("pipeline.dispatch.evaluator.subprocess.Popen", OSError(ENOMEM, "Cannot allocate memory")),
        ("pipeline.dispatch.evaluator.Thread.start", RuntimeError("can't start new thread")),
    ],
)
def test_a_machine_that_has_no_room_for_the_process_ends_nobody(what: str, error: Exception, *, patient: bool) -> None:
    """The guard fails, whatever the message, and works when there is room again."""
    made = Evaluator(LIMIT_MS, 256 << 20, patient=patient)
    try:
        if what.endswith("start"):
            assert made.ready() or is_up(made)
        with patch(what, side_effect=error):
            assert made.ready()
            with pytest.raises(GuardFailed, match="started") as failed:
                asked(made, "message_key = '7'")
        assert not failed.value.ended
        assert made.ready() or is_up(made)
        assert asked(made, "message_key = '7'") == [7]
    finally:
        made.close()


def test_a_guard_that_never_ends_is_told_from_a_machine_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process has to be ended, and no other one can be started then."""
    made = Evaluator(LIMIT_MS, 256 << 20)
    try:
        assert asked(made, "message_key = '7'") == [7]
        monkeypatch.setattr(made, "_start", Mock(side_effect=_NoProcess))
        with pytest.raises(GuardFailed, match="guard_timeout_ms") as failed:
            asked(made, FOREVER)
        assert failed.value.ended
    finally:
        made.close()


def test_a_process_that_does_not_start_is_a_guard_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """People are told. It is started once for each question, and not all the time."""
    monkeypatch.setattr("pipeline.dispatch.evaluator.python_path", lambda: "/nonexistent")
    made = Evaluator(LIMIT_MS, 256 << 20, patient=False)
    try:
        assert not made.ready()
        assert is_up(made)
        process = made._process
        assert made.ready()
        assert made._process is process
        with pytest.raises(GuardFailed, match="has died"):
            asked(made, "true")
    finally:
        made.close()

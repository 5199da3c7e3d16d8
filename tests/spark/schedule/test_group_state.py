"""The one door to Spark's `GroupState`: state and alarm together, a millisecond before the bucket; no JVM needed."""

from __future__ import annotations

import ast
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkValueError

from pipeline.worker import group_state as adapter
from pipeline.worker import release
from schemas.state import STATE_ROW, STATE_VERSION
from state import CorruptBytes, IndexGroup, encode_chunk
from tests.support.groupstates import NO_TIMER, group_state, timer_of, woken

PIPELINE = Path(adapter.__file__).parent
KEY = (3, 0)
NAME = b'["t","s","1"]'
Position = tuple[int, int, int]


def pending(*positions: Position, tick: int = 1) -> IndexGroup:
    """(ledger, entry, due) that wait for one subscription."""
    group = IndexGroup()
    if positions:
        assert group.append_chunk(NAME, tick, chunk(*positions, tick=tick)) == len(positions)
    return group


def stored(*positions: Position) -> tuple[object, ...]:
    """The row of a state in which they wait."""
    state = group_state()
    adapter.save(state, pending(*positions))
    row: tuple[object, ...] = state.get
    return row


def chunk(*positions: Position, tick: int = 1) -> bytes:
    """(ledger, entry, due), encoded."""
    ledgers, entries, due = (np.array(column, np.int64) for column in zip(*positions, strict=True))
    return encode_chunk(ledgers, entries, due, tick)


def frame(*chunks: bytes, tick: int = 1, subscription: str = "s") -> pd.DataFrame:
    """A frame as the stateful function gets it."""
    count = len(chunks)
    return pd.DataFrame({"owner": [owner(subscription)] * count, "tick_ms": [tick] * count, "chunk": list(chunks)})


def owner(subscription: str) -> str:
    """Whom an index is for."""
    return f'["t","{subscription}","1"]'


def let_go(answers: list[pd.DataFrame]) -> list[tuple[int, ...]]:
    """(ledger, first, last, due) of all runs in answers."""
    packed = [np.frombuffer(data, "<i8").reshape(4, -1).T for answer in answers for data in answer["runs"]]
    return [tuple(run) for runs in packed for run in runs.tolist()]


@pytest.mark.parametrize(("tick", "bucket"), [(1, 10_001), (1_000, 10_240), (np.int64(64), 10_048)])
def test_the_alarm_rings_in_the_batch_whose_instant_is_the_bucket(tick: int, bucket: int) -> None:
    """Spark wakes a key when the watermark is past the timer: set at the bucket, it would ring a batch too late."""
    state = group_state(watermark=5)
    adapter.save(state, pending((1, 1, 10_001), tick=int(tick)))
    assert timer_of(state) == bucket - 1
    assert woken(state, bucket - 1) is None
    awake = woken(state, bucket)
    assert awake is not None
    assert let_go(list(release.release(KEY, [], awake))) == [(1, 1, 1, bucket)]
    assert not awake.exists


def test_an_alarm_at_the_bucket_itself_is_a_batch_late() -> None:
    """The planted mistake: the batch at the bucket's time passes the key by; the message waits for the next tick."""
    state = group_state(stored((1, 1, 500)))
    state.update(state.get)
    state.setTimeoutTimestamp(500)
    assert woken(state, 500) is None
    assert woken(state, 501) is not None


def test_an_update_without_an_alarm_would_never_wake_again_and_only_one_function_updates() -> None:
    """Spark forgets the timer with an update; so `update` is called beside `_wake_at`, in the adapter alone."""
    planted = group_state((STATE_VERSION, 500, 1, b""))
    planted.update(planted.get)
    assert timer_of(planted) == NO_TIMER
    assert woken(planted, 10**12) is None
    doors = {path.stem: found for path in PIPELINE.rglob("*.py") if (found := door_of(path))}
    assert doors == {"group_state": {"save": {"update", "remove", "_wake_at"}, "keep": {"update", "_wake_at"}}}


def door_of(path: Path) -> dict[str, set[str]]:
    """The functions of a module that update a state, with what they call to change it."""
    doors = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
            methods = {f.attr for f in calls if isinstance(f, ast.Attribute) and ast.unparse(f.value) == "state"}
            changes = methods & {"update", "remove"}
            named = {f.id for f in calls if isinstance(f, ast.Name)} & {"_wake_at"}
            if "update" in changes:
                doors[node.name] = changes | named
    return doors


def test_an_alarm_below_the_watermark_is_lifted_to_it() -> None:
    """Spark refuses a timer in the past and the query would die; what is overdue is let go in the next batch."""
    with pytest.raises(PySparkValueError):
        group_state(watermark=700).setTimeoutTimestamp(699)
    state = group_state(watermark=700)
    adapter.save(state, pending((1, 1, 300)))
    assert timer_of(state) == 700
    assert woken(state, 701) is not None


@pytest.mark.parametrize("watermark", [-1, 0])
def test_before_the_first_tick_the_alarm_is_positive(watermark: int) -> None:
    """Spark refuses zero; what is due at the beginning of time waits for the first tick."""
    state = group_state(watermark=watermark)
    adapter.save(state, pending((1, 1, 1)))
    assert timer_of(state) == 1


def test_the_alarm_and_the_row_are_plain_integers() -> None:
    """Spark's JSON refuses `np.int64`, and the query would die at the end of the batch."""
    planted = group_state()
    planted.setTimeoutTimestamp(np.int64(5))  # type: ignore[arg-type] # the mistake
    with pytest.raises(TypeError):
        planted.json()
    state = group_state(watermark=5)
    adapter.save(state, pending((1, 1, 10_000)))
    assert type(state._timeout_timestamp) is int
    assert [type(value) for value in state.get] == [int, int, int, bytes]
    assert '"timeoutTimestamp": 9999' in state.json()


def test_what_was_saved_is_loaded_and_an_empty_index_forgets_its_key() -> None:
    """A key that waits for nothing costs nothing."""
    state = group_state(watermark=5)
    adapter.save(state, pending((3, 4, 900), (3, 5, 900), tick=64))
    loaded = adapter.load(state)
    assert (loaded.tick_ms(NAME), len(loaded)) == (64, 2)
    assert state.get[:3] == (STATE_VERSION, 960, 2)
    loaded.pop_due_runs(NAME, 960)
    adapter.save(state, loaded)
    assert not state.exists
    assert len(adapter.load(state)) == 0
    untouched = group_state()
    adapter.save(untouched, pending())
    assert not untouched._removed


@pytest.mark.parametrize("row", [(STATE_VERSION + 1, 1, 1, b""), (STATE_VERSION, 1, 1, b"rotten")])
def test_a_state_that_cannot_be_read_is_refused_and_kept(row: tuple[object, ...]) -> None:
    """Its bytes stay for those who look into it, its alarm rings again, and a row names the key and the remedy."""
    with pytest.raises(CorruptBytes):
        adapter.load(group_state(row))
    state = group_state(row, watermark=500, timed_out=True)
    answer = next(iter(release.release(KEY, [], state)))
    assert state.get == row
    assert timer_of(state) > 500
    assert "rebuild" in answer["error"][0]
    assert answer["segment_ms"][0] == KEY[1]


def test_chunks_of_a_state_that_cannot_be_read_come_back() -> None:
    """What arrives meanwhile is in the answer, so that nothing is lost."""
    state = group_state((STATE_VERSION, 1, 1, b"rotten"), watermark=500)
    sent = chunk((1, 1, 10))
    (answer,) = release.release(KEY, [frame(sent), frame(sent, subscription="z")], state)
    assert answer["chunk"].tolist() == [sent, sent]
    assert answer["owner"].tolist() == [owner("s"), owner("z")]


FRAMES = (frame(chunk((1, 0, 10), (1, 1, 10))), frame(chunk((1, 2, 10))), frame(chunk((0, 5, 9), (2, 0, 300))))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_frames_of_one_key_count_all_in_any_order(order: tuple[int, ...]) -> None:
    """Spark cuts a key's rows into frames as it likes: keeping the last one only would lose the others."""
    state = group_state(watermark=50)
    answers = list(release.release(KEY, [FRAMES[i] for i in order], state))
    assert let_go(answers) == [(0, 5, 5, 9), (1, 0, 2, 10)]
    assert timer_of(state) == 299
    whole = group_state(watermark=50)
    together = list(release.release(KEY, [pd.concat(FRAMES)], whole))
    assert let_go(together) == let_go(answers)


def test_data_and_time_out_release_by_one_rule() -> None:
    """What arrives in a batch after its time leaves in that batch, beside what waited."""
    state = group_state(stored((1, 1, 40)), watermark=50)
    answers = list(release.release(KEY, [frame(chunk((2, 2, 50), (2, 3, 51)))], state))
    assert let_go(answers) == [(1, 1, 1, 40), (2, 2, 2, 50)]
    assert timer_of(state) == 50


def test_a_chunk_that_is_refused_does_not_harm_its_neighbours() -> None:
    """It comes back with the reason; the key goes on with the others."""
    state = group_state(watermark=50)
    (answer,) = release.release(KEY, [frame(chunk((1, 1, 10)), b"rotten")], state)
    assert let_go([answer]) == [(1, 1, 1, 10)]
    assert answer["chunk"][answer["error"].notna()].tolist() == [b"rotten"]


def test_a_tick_that_no_index_takes_is_refused_with_its_chunk() -> None:
    """The others of its shard go on."""
    state, sent = group_state(watermark=50), chunk((1, 1, 10))
    (answer,) = release.release(KEY, [frame(sent, tick=0, subscription="odd"), frame(sent)], state)
    assert let_go([answer]) == [(1, 1, 1, 10)]
    assert answer[answer["error"].notna()][["owner", "chunk"]].to_numpy().tolist() == [[owner("odd"), sent]]


def test_a_subscription_that_rots_does_not_stop_its_shard() -> None:
    """It is named, kept as it is and looked at again in an hour; what is due for the others leaves."""
    state = group_state(watermark=5)
    assert list(release.release(KEY, [frame(chunk((1, 1, 10)), subscription="z")], state)) == []
    sent = chunk((2, 2, 10), (2, 3, 90))
    assert list(release.release(KEY, [frame(sent)], state)) == []
    *scalars, data = state.get
    # Indexes lie behind the directory in the order of names: the last one is that of `z`.
    state = group_state((*scalars, data[:-1] + bytes([data[-1] ^ 0xFF])), watermark=50, timed_out=True)
    (answer,) = release.release(KEY, [], state)
    assert let_go([answer]) == [(2, 2, 2, 10)]
    assert answer["owner"][answer["error"].notna()].tolist() == [owner("z")]
    assert timer_of(state) == 89
    later = woken(state, 90)
    assert later is not None
    (answer,) = release.release(KEY, [], later)
    assert let_go([answer]) == [(2, 3, 3, 90)]
    assert timer_of(later) == 50 + 3_600_000 - 1
    assert len(adapter.load(later)) == 1


def test_the_row_of_the_state_is_frozen() -> None:
    """Spark refuses a changed row at the restart, so all that may change lives in bytes with their own version."""
    assert STATE_ROW.struct.simpleString() == "struct<version:bigint,earliest_due:bigint,count:bigint,indexes:binary>"
    assert not any(field.nullable for field in STATE_ROW.fields)

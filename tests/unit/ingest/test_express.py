"""What goes past the schedule: each position for each listener, once, at the bucket of its tick."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="rows of segments are described by Spark's types")

from pipeline.ingest.segments import EXPRESS
from pipeline.worker.audience import Audience, Listener
from pipeline.worker.encode import Encoder
from pipeline.worker.express import NOW, Express
from state import tick_bits, trim_up

T0 = 1_700_000_000_000
POSITIONS = st.sets(st.tuples(st.sampled_from("tu"), st.integers(3, 6), st.integers(0, 40)), max_size=60)
LISTENERS: dict[str, tuple[Listener, ...]] = {
    "t": (("fine", 1, 1), ("alike", 2, 1), ("coarse", 1, 60_000)),
    "u": (("late", 1, 1_000),),
}
SINCE = {"t": (0,), "u": (5,)}


def rows(positions: list[tuple[str, int, int]], dues: list[int], until: int) -> list[dict[str, Any]]:
    """Positions, encoded as ingest does, and released."""
    topics, ledgers, entries = zip(*positions, strict=True)
    kinds = [NOW if due <= T0 else EXPRESS for due in dues]
    columns = {"kind": kinds, "topic": topics, "ledger_id": ledgers, "entry_id": entries, "due_ms": dues}
    heard = itertools.product((NOW, EXPRESS), LISTENERS)
    audiences = {(kind, topic): Audience(SINCE[topic], LISTENERS[topic]) for kind, topic in heard}
    encoded = Encoder(audiences, 300_000, T0)(iter(pa.table(columns).to_batches()))
    return [row for batch in Express(until, 7, T0)(encoded) for row in batch.to_pylist()]


def due_at(due: int, tick: int) -> int:
    """At the end of its bucket, or when the batch was taken if it was due then."""
    bucket = trim_up(due, tick_bits(tick))
    return bucket if due > T0 else min(bucket, T0)


@given(POSITIONS, st.randoms(use_true_random=False), st.integers(0, 10_000))
def test_every_listener_gets_each_position_once_at_its_own_bucket(positions: set[Any], draw: Any, ahead: int) -> None:  # noqa: ANN401
    """As the schedule would release them, but what is due already; and all of a batch at one instant if they can."""
    placed, until = sorted(positions), T0 + ahead
    if not placed:
        return
    dues = [draw.randrange(draw.choice((0, T0 - 2_000)), until) for _ in placed]
    found = rows(placed, dues, until)
    wanted = {
        (topic, name, life, ledger, entry, due_at(due, tick))
        for (topic, ledger, entry), due in zip(placed, dues, strict=True)
        for name, life, tick in LISTENERS[topic]
        if ledger >= SINCE[topic][0]
    }
    given = [
        (each["topic"], each["subscription"], each["life"], each["ledger_id"], entry, _ms(each["due_time"]))
        for each in found
        for entry in range(each["first_entry"], each["last_entry"] + 1)
    ]
    assert sorted(given) == sorted(wanted)
    assert {each["cause"] for each in found} <= {"express"}
    assert {each["batch_id"] for each in found} <= {7}
    assert all(each["released_at"] >= each["due_time"] for each in found)
    assert all(_ms(each["released_at"]) == until for each in found if each["tick_ms"] == 1)


def _ms(time: Any) -> int:  # noqa: ANN401 - a timestamp of pandas or Python
    ms: int = round(time.timestamp() * 1_000)
    return ms

"""The text of a seek, and the life that it begins."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.ingest.segments import Membership
from pipeline.subscriptions.incarnations import Incarnation, Joined, Sought, Subscription, audiences, lives_of
from pipeline.worker.encode import Encoder
from schemas import LEFT
from state import TimeBucketIndex

A = "t", "a"
LINE = Subscription(*A, 8, earliest=False, sought=Sought(5, 2, 3))


def test_a_seek_has_a_text_and_other_texts_are_none() -> None:
    """What the column held before there were seeks is none either."""
    assert Sought.of_text(str(Sought(7, 0, 12))) == Sought(7, 0, 12)
    texts = ["earliest", "latest", "", "7@1", "0@1:1", "7@-1:0", "7@1:1 ", "@1:1", None]
    assert [text for text in texts if Sought.of_text(text)] == []


def test_a_life_that_was_sought_begins_once() -> None:
    """It ends the one before, and has the number that the seek gave it; seen again, nothing changes."""
    first = Membership.of({A: LINE}, {A: Incarnation(3, 0, 8)}, 9)
    assert (first.left, first.joined) == (frozenset([A]), {A: Joined(2, 8, 3, 5)})
    assert set(first.backfill) == {"t"}
    assert first.oldest == 2
    again = Membership.of({A: LINE}, {A: Incarnation(5, 2, 8, 3)}, 9)
    assert not again.changed
    assert again.backfill == {}


def test_a_seek_before_ingest_knows_the_subscription_counts() -> None:
    """Its first life is the one that was sought."""
    assert Membership.of({A: LINE}, {}, 9).joined == {A: Joined(2, 8, 3, 5)}


def test_lives_are_counted_on_after_a_seek() -> None:
    """Markers carry the number of a seek; who leaves and comes back later has the next one."""
    joins = [Joined(4, 8), Joined(LEFT, 0), Joined(2, 8, 3, 5), Joined(LEFT, 0), Joined(11, 8)]
    assert lives_of((A, each) for each in joins[:3]) == {A: Incarnation(5, 2, 8, 3)}
    assert lives_of((A, each) for each in joins) == {A: Incarnation(6, 11, 8)}


def test_a_position_is_for_those_who_begin_at_it_or_before() -> None:
    """Within a ledger, too; beside others who begin in the same ledger, or with whole ones."""
    lives = {
        ("t", "whole"): Incarnation(1, 2, 8),
        ("t", "third"): Incarnation(4, 2, 8, 3),
        ("t", "fifth"): Incarnation(6, 2, 8, 5),
        ("t", "later"): Incarnation(1, 4, 8),
    }
    heard = audiences([Subscription(*name, 8, earliest=False) for name in lives], lives)
    ledgers, entries = np.repeat([1, 2, 3, 4], 8), np.tile(np.arange(8), 4)
    columns = [pa.array(["near"] * 32), pa.array(["t"] * 32), *map(pa.array, (ledgers, entries, ledgers * 0))]
    rows = pa.RecordBatch.from_arrays(columns, names=["kind", "topic", "ledger_id", "entry_id", "due_ms"])
    found: dict[str, set[tuple[int, int]]] = {name: set() for _, name in lives}
    for batch in Encoder({("near", "t"): heard["t"]}, 1_000, 0)(iter([rows])):
        for row in batch.to_pylist():
            index = TimeBucketIndex(8)
            index.append_chunk(row["chunk"])
            due = index.pop_due(1_000, 100)
            for listener in row["subscriptions"]:
                found[listener["name"]] |= set(zip(due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True))
    for _, name in lives:
        life = lives["t", name]
        places = zip(ledgers.tolist(), entries.tolist(), strict=True)
        assert found[name] == {place for place in places if place >= (life.since, life.entry)}

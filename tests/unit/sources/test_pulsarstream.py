"""Reading a topic of Pulsar by offsets, with a client that lives in memory: no message is lost, or comes twice."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the source needs requirements/all.lock")

from hypothesis import given
from hypothesis import strategies as st

from pipeline.client.checks import EPOCH
from pipeline.sources import pulsarstream
from pipeline.sources.pulsarstream import Offset, PulsarReader
from tests.support.importing import Id

Place = tuple[int, int, int]
BEFORE_ALL: Place = (-1, -1, -1)


@dataclass
class Topic:
    """The log of each partition, the cursor of a subscription, the client, and times of messages and of events."""

    logs: dict[str, list[Place]]
    acknowledged: dict[str, Place] = field(default_factory=dict)
    times: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def get_topic_partitions(self, _name: str) -> list[str]:
        """As the broker has them now."""
        return list(self.logs)

    def create_reader(self, partition: str, begin: Any) -> Reader:  # noqa: ANN401 - an id, or a word
        """A reader behind a position."""
        log = self.logs[partition]
        return Reader(log, BEFORE_ALL if begin == "earliest" else begin.place, self.times)

    def subscribe(self, partition: str, _name: str, **_options: object) -> SimpleNamespace:
        """A consumer that acknowledges only."""
        return SimpleNamespace(acknowledge_cumulative=lambda at: self.acknowledged.update({partition: at.place}))


@dataclass
class Reader:
    """Stands behind a position."""

    log: list[Place]
    at: Place
    times: dict[Place, tuple[int, int]]

    def has_message_available(self) -> bool:
        """Whether there is one."""
        return any(each > self.at for each in self.log)

    def read_next(self, _wait_ms: int) -> Any:  # noqa: ANN401 - of the client
        """The next one; its payload is its place."""
        self.at = min(each for each in self.log if each > self.at)
        published, happened = self.times.get(self.at, (1, 0))
        fields = {
            "message_id": Id(0, *self.at),
            "data": repr(self.at).encode(),
            "properties": {},
            "publish_timestamp": published,
            "event_timestamp": happened,
            "partition_key": "",
            "ordering_key": "",
            "has_null_value": False,
        }
        return SimpleNamespace(**{name: (lambda each=each: each) for name, each in fields.items()})

    def close(self) -> None:
        """Nothing is held."""


def reader(monkeypatch: pytest.MonkeyPatch, topic: Topic, **options: str) -> PulsarReader:
    """The source under test."""
    made = type("MessageId", (), {"earliest": "earliest", "__new__": lambda _, *at: Id(*at)})
    positions = SimpleNamespace(Latest="latest", Earliest="earliest")
    client = SimpleNamespace(MessageId=made, InitialPosition=positions)
    monkeypatch.setattr(pulsarstream, "package", lambda: client)
    monkeypatch.setattr(pulsarstream, "connected", lambda _: topic)
    return PulsarReader({"service": "s", "topic": "a/b/t", "subscription": "n", "max_rows": "9", **options})


def taken(rows: Sequence[Any]) -> list[str]:
    """The payloads."""
    return [row[-1].decode() for row in rows]


def wanted(*places: Place) -> list[str]:
    """The payloads of places."""
    return [repr(each) for each in places]


logs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-1, 2)), unique=True, max_size=12).map(
    sorted
)


@given(logs, logs, st.integers(1, 5), st.data())
def test_wherever_batches_end_and_starts_begin_each_message_comes_once(
    first: list[Place], second: list[Place], most: int, data: st.DataObject
) -> None:
    """Of both partitions in order, whether the process goes on or a new one begins behind the last offset."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        topic = Topic({"p-0": first, "p-1": second})
        source, offset, rows = reader(monkeypatch, topic, max_rows=str(most)), Offset(), list[Any]()
        while True:
            if data.draw(st.booleans()):
                source = reader(monkeypatch, topic, max_rows=str(most))
            found, end = source.read(offset)
            batch = list(found)
            again = reader(monkeypatch, topic).readBetweenOffsets(offset, end)
            assert sorted(taken(list(again))) == sorted(taken(batch))
            if end == offset:
                break
            offset, rows = end, rows + batch
        assert sorted(taken(rows)) == sorted(wanted(*first, *second))
        assert sum(int(each.rpartition(":")[2]) for each in offset.values()) == len(first) + len(second)


@pytest.mark.parametrize("event", [1_800_000_000_000_000, 1_800_000_000_000_000_000, (1 << 64) - 1])
def test_a_time_that_no_calendar_has_stops_nothing(monkeypatch: pytest.MonkeyPatch, event: int) -> None:
    """A producer that counts in us or ns stopped the source for ever. The number is kept as it was sent."""
    topic = Topic({"p": [(1, 0, -1), (1, 1, -1)]}, times={(1, 0, -1): (event, event), (1, 1, -1): (5, 7)})
    rows, _ = reader(monkeypatch, topic).read({})
    (*_, strange, published, happened, _), (*_, properties, sent, then, _) = rows
    assert (strange, published, happened) == ({"delayline.event_time": str(event)}, None, None)
    assert (properties, sent, then) == ({}, EPOCH + timedelta(milliseconds=5), EPOCH + timedelta(milliseconds=7))


def test_what_is_done_with_is_acknowledged_and_a_new_partition_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its beginning; nothing is acknowledged before Spark says so."""
    topic = Topic({"p": [(1, 0, 0), (1, 0, 1)]})
    source = reader(monkeypatch, topic)
    _, end = source.read({})
    topic.logs["q"] = [(5, 0, -1)]
    rows, later = source.read(end)
    assert (taken(list(rows)), topic.acknowledged) == (wanted((5, 0, -1)), {})
    source.commit(later)
    assert topic.acknowledged == {"p": (1, 0, 1), "q": (5, 0, -1)}


def test_a_message_that_is_gone_is_no_silent_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a batch is read once more, and the topic has lost what was in it."""
    topic = Topic({"p": [(1, 0, -1), (1, 1, -1)]})
    _, end = reader(monkeypatch, topic).read({})
    topic.logs["p"].clear()
    with pytest.raises(OSError, match="has no messages up to 1:1:-1:2"):
        list(reader(monkeypatch, topic).readBetweenOffsets({}, end))


def test_executors_get_it_without_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark pickles it while it reads."""
    source = reader(monkeypatch, Topic({"p": [(1, 0, -1)]}))
    source.read({})
    again = pickle.loads(pickle.dumps(source))  # noqa: S301 - our own
    assert (again._client, again._readers, again._keepers, again._at) == (None, {}, {}, {})

"""A sink on a broker that lives in memory: where it begins, where it goes on, and what stops it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree
from threading import Event, Semaphore
from threading import enumerate as threads
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.errors import SinkPlaceGone, VersionGone
from pipeline.delta.deltars import append, open_table, path_of, query, rows_of
from pipeline.sinks.line import SinkConfig
from pipeline.sinks.loop import SinkLoop
from pipeline.sinks.topic import Refused
from pipeline.storage.files import Files
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.sinkplaces import SinkPlaces, TurnPlace
from schemas import DELIVERIES, REJECTED_DISPATCH
from tests.support.client import empty_warehouse, new_warehouse
from tests.support.sinks import ADDRESS, Killed, MemoryBroker, MemoryTopic, delivered, places, run, sink, version
from tests.unit.sinks.test_running import until


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def test_a_sink_publishes_what_its_subscription_was_given_and_nothing_else(root: str) -> None:
    """In the order in which it became visible."""
    broker = MemoryBroker()
    delivered(root, "a", "b")
    delivered(root, "other", subscription="z")
    delivered(root, "other", topic="u")
    delivered(root, "c")
    run(sink(root, broker.connect))
    assert broker.payloads == [b"a", b"b", b"c"]


def test_a_sink_begins_behind_the_version_at_which_it_was_named(root: str) -> None:
    """What came before is not published; without a version it is what is there when the sink is first seen."""
    named, seen = MemoryBroker(), MemoryBroker()
    delivered(root, "a")
    after = delivered(root, "b")
    unnamed = sink(root, seen.connect, after=None)
    delivered(root, "c")
    run(unnamed)
    run(sink(root, named.connect, after=after - 1))
    assert (named.payloads, seen.payloads) == ([b"b", b"c"], [b"c"])


def steps(root: str, broker: MemoryBroker, most: int) -> None:
    """Let a process after the other work until all is published; each dies of its first failure."""
    while True:
        loop = sink(root, broker.connect, most=most)
        try:
            run(loop)
        except Killed:
            continue
        return


# Each example is a warehouse with commits of its own.
@settings(max_examples=max(1, settings().max_examples // 3))
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    fails=st.lists(st.sampled_from(["", "before", "after"]), max_size=8),
    most=st.integers(1, 5),
    keeps=st.booleans(),
)
def test_wherever_it_dies_each_message_is_published_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], fails: list[str], most: int, *, keeps: bool
) -> None:
    """Beside any of its publications, of any size, over any versions; by the broker's place, or by ids it knows."""
    folder, broker = tmp_path_factory.mktemp("w") / "warehouse", MemoryBroker(fails=fails, keeps_place=keeps)
    root = copytree(empty_warehouse(), str(folder))
    names = [[f"{number}.{row}" for row in range(size)] for number, size in enumerate(sizes)]
    for each in names:
        delivered(root, *each)
    steps(root, broker, most)
    assert broker.payloads == [name.encode() for each in names for name in each]


def test_what_a_broker_without_places_has_confirmed_is_noted_soon(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed then sends nothing again but what it had in its hands."""
    monkeypatch.setattr("pipeline.sinks.loop._CONFIRMED_MS", 0)
    broker = MemoryBroker(keeps_place=False)
    delivered(root, "a", "b", "c")
    loop = sink(root, broker.connect, most=1)
    for rows in (1, 2):
        assert loop.step()
        noted = places(root).get(loop.name)
        assert noted is not None
        assert (noted.published, noted.rows, noted.place) == (rows, rows, broker.last)


def test_large_messages_are_published_few_at_a_time(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are published together are held in memory; ten thousand of five megabytes would not fit."""
    monkeypatch.setattr("pipeline.sinks.loop._MOST_BYTES", 10)
    broker = MemoryBroker()
    delivered(root, "a", "b", "c", payload=bytes(6))
    loop = sink(root, broker.connect)
    for published in (2, 3):
        assert loop.step()
        assert len(broker.payloads) == published
    assert not loop.step()


@pytest.mark.parametrize(("keeps", "names"), [(True, True), (True, False), (False, True)])
def test_what_a_broker_refuses_for_good_is_listed_and_the_sink_goes_on(root: str, *, keeps: bool, names: bool) -> None:
    """It stood still for ever before one message that is too large; all others are there, once and in order."""
    broker = MemoryBroker(keeps_place=keeps, refuses=[b"d", b"f", b"g"], names_refused=names)
    delivered(root, *"abcdefgh")
    run(sink(root, broker.connect, refused="reject", most=6))
    assert broker.payloads == [b"a", b"b", b"c", b"e", b"h"]
    rejected = "SELECT topic, subscription, reason, entry_id FROM t ORDER BY entry_id"
    found = query(rejected, t=open_table(root, REJECTED_DISPATCH))
    assert [tuple(each.values()) for each in found] == [("t", "s", "refused_by_broker", n) for n in (4, 6, 7)]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_message_that_was_listed_is_listed_once_whoever_dies_behind_it(root: str, *, keeps: bool) -> None:
    """The place behind it may not be noted yet."""
    broker = MemoryBroker(keeps_place=keeps, refuses=[b"b"])
    delivered(root, *"abc")
    dying = sink(root, broker.connect, refused="reject")
    while not query("SELECT * FROM t", t=open_table(root, REJECTED_DISPATCH)):
        dying.step()
    run(sink(root, broker.connect, refused="reject"))
    assert broker.payloads == [b"a", b"c"]
    assert len(query("SELECT * FROM t", t=open_table(root, REJECTED_DISPATCH))) == 1


def listed(loop: SinkLoop, root: str, *orders: TurnPlace) -> list[int]:
    """What is listed when a broker has refused some messages; each has the number of its place as its entry."""
    for order in orders:
        row: dict[str, Any] = dict.fromkeys(("batch_id", "life", "ledger_id", "redelivery_count", "round"), 1)
        row |= {"entry_id": order.deliveries, "due_time": datetime.now(UTC), "cause": "due", "message_key": None}
        loop._reject(order, row, "too large")
    rows = query("SELECT entry_id FROM t ORDER BY entry_id", t=open_table(root, REJECTED_DISPATCH))
    return [row["entry_id"] for row in rows]


@pytest.mark.parametrize("turn", [1_800_000_000_000, 2_500_000_000_000], ids=["2027", "2049"])
def test_a_refused_message_is_listed_however_many_are_due_with_it(root: str, turn: int) -> None:
    """Behind four million in a turn the number of one was that of another turn, and the next ones had no row."""
    loop, many = sink(root, MemoryBroker().connect, refused="reject"), 5 << 22
    orders = [TurnPlace(turn, many), TurnPlace(turn, many + 1), TurnPlace(turn + 1, 7), TurnPlace(turn + 4, 1)]
    assert listed(loop, root, *orders) == [1, 7, many, many + 1]
    assert listed(sink(root, MemoryBroker().connect, refused="reject"), root, *orders) == [1, 7, many, many + 1]


def test_what_an_earlier_version_has_listed_is_not_listed_again(root: str) -> None:
    """It noted turn and place in one number."""
    turn, loop = 1_800_000_000_000, sink(root, MemoryBroker().connect, refused="reject")
    append(root, REJECTED_DISPATCH, rows_of(REJECTED_DISPATCH, []), once=(loop.name, turn << 22 | 3))
    before = [TurnPlace(turn - 1, 9), TurnPlace(turn, 2), TurnPlace(turn, 3)]
    assert listed(loop, root, *before, TurnPlace(turn, 4), TurnPlace(turn + 1, 1)) == [1, 4]


@pytest.mark.parametrize("keeps", [True, False])
def test_what_a_broker_refuses_stops_a_sink_that_is_not_told_else(root: str, *, keeps: bool) -> None:
    """Nothing is published behind it. When the broker takes it, the sink goes on."""
    broker = MemoryBroker(keeps_place=keeps, refuses=[b"c"])
    delivered(root, *"abcd")
    loop = sink(root, broker.connect)
    with pytest.raises(Refused, match="too large"):
        run(loop)
    assert broker.payloads == [b"a", b"b"]
    broker.refuses = ()
    run(loop)
    assert broker.payloads == [b"a", b"b", b"c", b"d"]
    assert not query("SELECT * FROM t", t=open_table(root, REJECTED_DISPATCH))


@pytest.mark.parametrize("keeps", [True, False])
def test_a_sink_whose_servers_or_settings_change_goes_on_where_it_was(root: str, *, keeps: bool) -> None:
    """What it had not sent was skipped, or all came again."""
    broker = MemoryBroker(keeps_place=keeps)
    delivered(root, *"abcd")
    first = sink(root, broker.connect, most=2)
    first.step()
    first.stop()
    run(sink(root, broker.connect, "kafka://localhost:9093/out?message.max.bytes=2000000"))
    assert (broker.payloads, len(places(root).names())) == ([b"a", b"b", b"c", b"d"], 1)
    run(sink(root, MemoryBroker().connect, "kafka://localhost:9093/else"))
    assert len(places(root).names()) == 2


def test_names_with_a_nul_are_told_apart_and_the_others_are_what_they_were() -> None:
    """Two sinks of one name would share a place, and each would stop the other."""
    one, other = (SinkConfig(*of, ADDRESS, 0) for of in (("a\0b", "c"), ("a", "b\0c")))
    assert one.name("t", {}) != other.name("t", {})
    assert one.producer("t") != other.producer("t")
    assert SinkConfig("t", "s", ADDRESS, 0).name("table", {}) == "delayline-112ba4b31edb55d989cb3e60"


def test_a_failure_is_followed_by_a_new_connection(root: str) -> None:
    """The same thread goes on, from the place that was committed."""
    broker = MemoryBroker(fails=["", "after", "before"])
    delivered(root, "a", "b")
    loop = sink(root, broker.connect, most=1)
    for _ in range(2):
        with pytest.raises(Killed):
            loop.step()
    run(loop)
    assert (broker.payloads, broker.connections) == ([b"a", b"b"], 3)


def test_a_sink_whose_place_the_broker_has_forgotten_stands_still(root: str) -> None:
    """Beginning anew would publish everything twice."""
    broker = MemoryBroker()
    delivered(root, "a")
    run(sink(root, broker.connect))
    broker.place = None
    delivered(root, "b")
    with pytest.raises(SinkPlaceGone, match="forgotten"):
        run(sink(root, broker.connect))
    assert broker.payloads == [b"a"]


def test_a_sink_that_was_given_another_begin_goes_on_there(root: str) -> None:
    """It is the remedy for a place that is gone."""
    broker = MemoryBroker()
    delivered(root, "a")
    run(sink(root, broker.connect))
    broker.place = None
    delivered(root, "b")
    run(sink(root, broker.connect, after=version(root) - 1))
    assert broker.payloads == [b"a", b"b"]


def test_a_table_that_was_set_back_stops_the_sink(root: str) -> None:
    """New versions would have numbers that it has passed already."""
    broker = MemoryBroker()
    delivered(root, "a")
    newest = delivered(root, "b")
    run(sink(root, broker.connect))
    (Path(path_of(root, DELIVERIES)) / "_delta_log" / f"{newest:020d}.json").unlink()
    with pytest.raises(SinkPlaceGone, match="set back"):
        run(sink(root, broker.connect))


def test_a_log_that_was_cut_above_the_place_stops_the_sink(root: str) -> None:
    """Somebody else cut it; maintenance does not."""
    broker = MemoryBroker()
    for name in "abc":
        delivered(root, name)
    open_table(root, DELIVERIES).create_checkpoint()
    for number in range(3):
        (Path(path_of(root, DELIVERIES)) / "_delta_log" / f"{number:020d}.json").unlink()
    with pytest.raises(VersionGone):
        run(sink(root, broker.connect))


def test_the_slowest_sink_says_from_where_on_the_log_is_needed(root: str) -> None:
    """A sink is noted before it publishes anything; one that has ended needs nothing."""
    assert places(root).needed() is None
    slow = sink(root, MemoryBroker().connect, after=3)
    sink(root, MemoryBroker().connect, "kafka://127.0.0.1:9092/else", after=9)
    assert places(root).needed() == 4
    places(root).drop(slow.name)
    assert places(root).needed() == 10


def test_a_sink_that_nobody_waits_for_any_more_notes_publishes_and_says_nothing(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its broker answers when its notes are gone already; a later sink of the same name would go on with others.

    It does not try again, so it warns of nothing.
    """
    broker, asked, answered = MemoryBroker(), Event(), Event()

    def connect(to: Destination, producer: str, place: str) -> MemoryTopic:
        asked.set()
        answered.wait()
        return broker.connect(to, producer, place)

    delivered(root, "a")
    loop = sink(root, connect)
    loop.start(60)
    asked.wait()
    (thread,) = (each for each in threads() if each.name.endswith(loop.name))
    loop.stop(patience_s=0)
    places(root).drop(loop.name)
    answered.set()
    thread.join()
    assert (places(root).get(loop.name), places(root).taken_up(loop.name)) == (None, None)
    assert (broker.payloads, caplog.messages) == ([], [])


def test_a_sink_that_another_process_has_waits_until_it_lets_go(
    root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of a job before may end up to 15 s later. Two would write the same notes, and one would count for both."""
    monkeypatch.setattr("pipeline.sinks.loop._FIRST_PAUSE_S", 0.01)
    broker = MemoryBroker(keeps_place=False)
    delivered(root, *"ab")
    older, younger = (sink(root, broker.connect) for _ in range(2))
    older.start(0.01)
    until(lambda: broker.payloads == [b"a", b"b"])
    connections = broker.connections
    younger.start(0.01)
    until(lambda: "StageRunning" in caplog.text)
    assert broker.connections == connections
    delivered(root, "c")
    until(lambda: broker.payloads == [b"a", b"b", b"c"])
    older.stop()
    delivered(root, "d")
    until(lambda: broker.payloads == [b"a", b"b", b"c", b"d"])
    younger.stop()
    noted = places(root).get(younger.name)
    assert noted is not None
    assert (noted.published, noted.error) == (4, None)


class Away(Files):
    """A store that takes nothing, while that is wanted."""

    away = False

    def write(self, path: str, content: str | bytes, *, lasting: bool = True) -> None:
        """As in `Files`."""
        if self.away:
            raise OSError("away")
        super().write(path, content, lasting=lasting)


def test_a_store_that_does_not_answer_ends_no_sink(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot note why it stands still then, and tries again all the same."""
    monkeypatch.setattr("pipeline.sinks.loop._FIRST_PAUSE_S", 0.01)
    broker, tried, store = MemoryBroker(), Semaphore(0), Away()

    def connect(to: Destination, producer: str, place: str) -> MemoryTopic:
        if store.away:
            tried.release()
            raise OSError("away")
        return broker.connect(to, producer, place)

    delivered(root, "a")
    loop = SinkLoop(root, "table", SinkConfig("t", "s", ADDRESS, 0), SinkPlaces(store, root), connect)
    store.away = True
    loop.start(0.01)
    try:
        assert all(tried.acquire(timeout=60) for _ in range(2))
        store.away = False
        until(lambda: broker.payloads == [b"a"])
    finally:
        loop.stop()

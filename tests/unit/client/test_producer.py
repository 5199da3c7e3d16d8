"""Producing with a client: what is sent stands in the inbox, once and in order, or its sender is told why not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client.client import Client
from pipeline.client.exceptions import (
    AlreadyClosed,
    MemoryBufferIsFull,
    OperationNotSupported,
    ProducerBusy,
    ProducerQueueIsFull,
    Result,
    Timeout,
)
from pipeline.client.message import MessageId
from pipeline.client.producing import writer as producer_inbox
from pipeline.config.errors import ColumnGone
from pipeline.delta.deltars import open_table, path_of, query
from schemas import INBOX
from tests.support.modules import ROOT
from tests.support.producing import inbox, payloads


class Callback:
    """What callbacks were told."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.ids: list[MessageId | None] = []

    def __call__(self, result: Result, message_id: MessageId | None) -> None:
        """Be told."""
        self.results.append(result)
        self.ids.append(message_id)


class Failing:
    """`write_deltalake`, failing for some calls, before or after it has written."""

    def __init__(self, *plan: str) -> None:
        """Follow a plan: `before`, `after` or `well`, then well for ever; `never` fails for ever."""
        self.plan, self.calls = list(plan), 0

    def __call__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as it is called
        """Write, or not."""
        self.calls += 1
        step = self.plan[0] if self.plan[:1] == ["never"] else self.plan.pop(0) if self.plan else "well"
        if step in ("before", "never"):
            raise OSError(step)
        write_deltalake(*args, **kwargs)
        if step == "after":
            raise OSError(step)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts take no time."""
    monkeypatch.setattr("pipeline.client.producing.writer._PAUSE_S", 0.0)
    monkeypatch.setattr("pipeline.client.producing.writer._LONGEST_PAUSE_S", 0.0)


def test_what_is_sent_stands_in_the_inbox_with_all_that_was_said_of_it(root: str, client: Client) -> None:
    """Times are ms since the epoch; what the inbox has no column for travels as properties."""
    producer = client.create_producer("orders")
    sent = producer.send(
        b"pay",
        properties={"color": "red"},
        partition_key="order-1",
        ordering_key="customer-7",
        event_timestamp=1_700_000_000_123,
        deliver_at=4_000_000_000_001,
    )
    (row,) = inbox(root)
    assert (row["topic"], row["message_key"], row["payload"]) == ("orders", "order-1", b"pay")
    assert dict(row["properties"]) == {
        "color": "red",
        "delayline.event_time": "1700000000123",
        "delayline.ordering_key": "customer-7",
    }
    assert round(row["deliver_at"].timestamp() * 1_000) == 4_000_000_000_001
    assert row["deliver_after_ms"] is None
    assert (sent.is_sent, sent.topic_name(), sent.entry_id()) == (True, "orders", -1)
    assert (row["producer_name"], row["sequence_id"]) == (producer.producer_name(), 0)


def test_a_delay_counts_from_the_moment_of_sending(root: str, client: Client) -> None:
    """Not from when ingest takes the message, which may be stopped. A delay that is over means at once."""
    producer = client.create_producer("orders")
    producer.send(b"1", deliver_after=timedelta(hours=2))
    producer.send(b"2", deliver_after=timedelta(seconds=-5))
    producer.send(b"3", deliver_after=timedelta.min)
    waits = [row["deliver_at"] - row["publish_time"] for row in inbox(root)]
    assert timedelta(hours=2) <= waits[0] <= timedelta(hours=2, milliseconds=1)
    assert waits[2] < waits[1] < timedelta(0)


def test_messages_of_all_producers_of_a_client_share_commits_and_keep_their_order(root: str, client: Client) -> None:
    """Callbacks come in the order of sending, each with the id of its message."""
    callbacks = [Callback(), Callback()]
    producers = [client.create_producer(topic, batching_max_publish_delay_ms=60_000) for topic in ("a", "b")]
    before = open_table(root, INBOX).version()
    for number in range(50):
        for producer, callback in zip(producers, callbacks, strict=True):
            producer.send_async(b"%03d" % number, callback)
    producers[0].flush()
    producers[1].flush()
    assert open_table(root, INBOX).version() == before + 1
    assert [each.results for each in callbacks] == [[Result.Ok] * 50] * 2
    assert [each.identity.sequence_id for each in callbacks[1].ids if each and each.identity] == list(range(50))
    assert [row["payload"] for row in query("SELECT * FROM i WHERE topic = 'a'", i=open_table(root, INBOX))] == [
        b"%03d" % number for number in range(50)
    ]


def test_enough_messages_go_without_waiting_for_more(client: Client) -> None:
    """By number or by bytes, whatever the delay of a batch."""
    options: list[dict[str, Any]] = [
        {"batching_max_messages": 2},
        {"batching_max_allowed_size_in_bytes": 2},
        {"batching_enabled": False},
    ]
    for option in options:
        producer = client.create_producer("t", batching_max_publish_delay_ms=10**9, **option)
        answers = [Callback(), Callback()]
        for answer in answers:
            producer.send_async(b"x", answer)
        producer._queue.flush_all()
        assert [each.results for each in answers] == [[Result.Ok]] * 2


def test_a_full_queue_refuses_the_next_message(root: str, client: Client) -> None:
    """The callback is told, as in the reference; without one the call raises."""
    producer = client.create_producer("t", max_pending_messages=1, batching_max_publish_delay_ms=10**9)
    first, second = Callback(), Callback()
    producer.send_async(b"1", first)
    producer.send_async(b"2", second)
    assert (second.results, second.ids) == ([Result.ProducerQueueIsFull], [None])
    with pytest.raises(ProducerQueueIsFull) as refused:
        producer.send_async(b"3", None)
    assert refused.value.allowed == 1
    producer.flush()
    assert (first.results, payloads(root)) == ([Result.Ok], [b"1"])


def test_a_producer_that_blocks_loses_nothing(root: str, client: Client) -> None:
    """Many more messages than may wait: the caller waits for room."""
    producer = client.create_producer("t", max_pending_messages=3, block_if_queue_full=True)
    callback = Callback()
    for number in range(40):
        producer.send_async(b"%02d" % number, callback)
    producer.close()
    assert callback.results == [Result.Ok] * 40
    assert payloads(root) == [b"%02d" % number for number in range(40)]


def test_the_memory_limit_holds_for_all_producers_of_a_client(client: Client) -> None:
    """One of them fills it; one message may always wait, however large it is."""
    one, two = (client.create_producer(topic, batching_max_publish_delay_ms=10**9) for topic in "ab")
    one._route.senders[0].batch_bytes = 1 << 40
    one.send_async(bytes(2 << 20), None)
    with pytest.raises(MemoryBufferIsFull) as refused:
        two.send_async(b"x", None)
    assert refused.value.allowed == 1 << 20


@pytest.mark.usefixtures("quick")
def test_a_commit_that_failed_is_tried_again(root: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may be away for a while; nobody notices but by the time it takes."""
    monkeypatch.setattr(producer_inbox, "write_deltalake", failing := Failing("before", "before"))
    client.create_producer("t").send(b"1")
    assert (failing.calls, payloads(root)) == (3, [b"1"])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [None, "shop"])
def test_a_commit_whose_answer_was_lost_is_not_made_again(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """It is found in the log by its mark."""
    monkeypatch.setattr(producer_inbox, "write_deltalake", failing := Failing("after"))
    producer = client.create_producer("t", name)
    sent = producer.send(b"1")
    assert (failing.calls, payloads(root)) == (1, [b"1"])
    assert sent.topic_name() == "t"
    producer.send(b"2")
    assert payloads(root) == [b"1", b"2"]


@pytest.mark.usefixtures("quick")
def test_ids_stay_true_when_the_answer_is_lost_and_another_producer_gives_up(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a message that timed out are in the commit all the same, before or behind those of the others."""
    monkeypatch.setattr(producer_inbox, "write_deltalake", Failing("after"))
    waits = {"batching_max_publish_delay_ms": 10**9}
    short = client.create_producer("a", send_timeout_millis=1, **waits)  # type: ignore[arg-type] # a number
    long, late, sent = client.create_producer("b", **waits), Callback(), Callback()  # type: ignore[arg-type] # the same
    for _ in range(2):
        short.send_async(b"x", late)
        long.send_async(b"y", sent)
    long.flush()
    assert late.results == [Result.Timeout] * 2
    assert [str(each) for each in sent.ids] == [f"{long.producer_name()}:{number}" for number in range(2)]
    assert payloads(root) == [b"x", b"x", b"y", b"y"]


@pytest.mark.usefixtures("quick")
def test_a_disk_that_is_full_is_the_reason_that_a_program_is_told(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw panics of a library, a backtrace each, and then that something took longer than 30 s."""

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    monkeypatch.setattr(producer_inbox, "check_room", full)
    monkeypatch.setattr(producer_inbox, "write_deltalake", None)
    with pytest.raises(Timeout, match=rf"took longer than 1 ms: .*No space left on device: '{root}/inbox'$"):
        client.create_producer("t", send_timeout_millis=1).send(b"1")
    monkeypatch.undo()
    client.create_producer("t").send(b"2")
    assert payloads(root) == [b"2"]


@pytest.mark.usefixtures("quick")
def test_what_the_store_does_not_take_in_time_fails_and_what_comes_later_is_sent(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost silently: `send` raises, callbacks are told, `flush` raises for those without one."""
    monkeypatch.setattr(producer_inbox, "write_deltalake", failing := Failing("never"))
    producer = client.create_producer("t", "shop", send_timeout_millis=1)
    callback = Callback()
    producer.send_async(b"1", callback)
    producer.send_async(b"2", None)
    with pytest.raises(Timeout) as late:
        producer.flush()
    assert isinstance(late.value.__cause__, OSError)
    assert callback.results == [Result.Timeout]
    with pytest.raises(Timeout):
        producer.send(b"3", sequence_id=7)
    failing.plan.clear()
    producer._route.senders[0].timeout_s = 30
    producer.send(b"4", sequence_id=7)
    producer.flush()
    assert (payloads(root), producer.last_sequence_id()) == ([b"4"], 7)


def test_what_cannot_be_written_at_all_is_not_tried_again(root: str, client: Client) -> None:
    """A column that somebody dropped comes back by no waiting."""
    producer = client.create_producer("t")
    table = open_table(root, INBOX)
    rows = query("SELECT topic, payload FROM i", i=table)
    assert rows == []
    import pyarrow as pa  # noqa: PLC0415 - for this one table

    narrow = pa.table({"topic": pa.array([], pa.string()), "payload": pa.array([], pa.binary())})
    write_deltalake(path_of(root, INBOX), narrow, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ColumnGone):
        producer.send(b"1")


def test_a_producer_with_a_name_sends_no_number_twice(root: str) -> None:
    """Whoever sends all again after a crash, with the same numbers, sends what is missing only."""
    with Client(root) as first:
        producer = first.create_producer("t", "shop")
        assert producer.last_sequence_id() == -1
        for number in range(3):
            producer.send(b"%d" % number, sequence_id=number)
    with Client(root) as second:
        producer = second.create_producer("t", "shop")
        assert producer.last_sequence_id() == 2
        callback = Callback()
        for number in range(5):
            producer.send_async(b"%d" % number, callback, sequence_id=number)
        producer.flush()
        assert callback.results == [Result.Ok] * 5
        assert [str(each) for each in callback.ids] == [f"shop:{number}" for number in range(5)]
        assert producer.last_sequence_id() == 4
    assert payloads(root) == [b"0", b"1", b"2", b"3", b"4"]


def test_numbers_are_counted_from_the_last_one_or_from_where_the_caller_says(root: str, client: Client) -> None:
    """Names of other topics have nothing to do with it, and producers without a name begin anew."""
    client.create_producer("t", "shop", initial_sequence_id=99).send(b"1")
    again = client.create_producer("t", "shop")
    assert again.last_sequence_id() == 100
    again.send(b"2")
    assert again.last_sequence_id() == 101
    assert client.create_producer("u", "shop").last_sequence_id() == -1
    unnamed = client.create_producer("t")
    unnamed.send(b"3", sequence_id=5)
    unnamed.send(b"4", sequence_id=5)
    assert payloads(root) == [b"1", b"2", b"3", b"4"]


@pytest.mark.usefixtures("quick")
def test_two_processes_under_one_name_are_found_out(root: str) -> None:
    """The second one's numbers are the first one's: its message is refused, not taken for one that was sent."""
    with Client(root) as one, Client(root) as two:
        first, second = one.create_producer("t", "shop"), two.create_producer("t", "shop")
        second.send(b"1")
        first.send(b"2", sequence_id=10)
        with pytest.raises(ProducerBusy) as busy:
            second.send(b"3")
        assert busy.value.stored == 10
        second.send(b"4")
    assert payloads(root) == [b"1", b"2", b"4"]


def test_what_is_closed_takes_nothing_more(root: str) -> None:
    """Closing flushes first; the end of the block closes."""
    callback = Callback()
    with Client(root) as client:
        with client.create_producer("t", batching_max_publish_delay_ms=10**9) as producer:
            producer.send_async(b"1", callback)
            assert producer.is_connected()
        assert callback.results == [Result.Ok]
        assert not producer.is_connected()
        with pytest.raises(AlreadyClosed):
            producer.send(b"2")
        left = client.create_producer("t", batching_max_publish_delay_ms=10**9)
        left.send_async(b"3", callback)
    assert callback.results == [Result.Ok] * 2
    with pytest.raises(AlreadyClosed):
        client.create_producer("t")
    assert payloads(root) == [b"1", b"3"]


def test_a_shutdown_tells_each_message_that_was_not_sent(root: str) -> None:
    """It does not wait for the store."""
    client, callback = Client(root), Callback()
    client.create_producer("t", batching_max_publish_delay_ms=10**9).send_async(b"1", callback)
    client.shutdown()
    assert (callback.results, payloads(root)) == ([Result.AlreadyClosed], [])


def test_a_callback_that_fails_or_waits_for_itself_harms_nobody(root: str, client: Client) -> None:
    """It runs in the thread that writes: a call that would wait for that thread is refused."""
    producer, refused, last = client.create_producer("t"), [], Callback()

    def callback(_: Result, __: MessageId | None) -> None:
        try:
            producer.send(b"2")
        except OperationNotSupported as error:
            refused.append(error.call)
        raise RuntimeError

    producer.send_async(b"1", callback)
    producer.send_async(b"3", last)
    producer.flush()
    assert (refused, last.results) == (["send"], [Result.Ok])
    assert payloads(root) == [b"1", b"3"]


def test_a_program_that_ends_without_closing_sends_what_it_was_given(root: str) -> None:
    """Also what is empty, and waits for others to go with it."""
    program = (
        "import sys\nfrom pipeline.client.client import Client\n"
        "producer = Client(sys.argv[1]).create_producer('t', batching_max_publish_delay_ms=10**9)\n"
        "producer.send_async(b'', None)\nproducer.send_async(b'x', None)\n"
    )
    subprocess.run([sys.executable, "-c", program, root], cwd=ROOT, check=True)  # noqa: S603 - our own words
    assert payloads(root) == [b"", b"x"]


@pytest.mark.usefixtures("quick")
def test_what_waits_behind_a_message_that_failed_fails_with_it_and_both_can_be_sent_again(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the second one sent, the first one's number would be an old one, and sending it again would be ignored."""
    producer, callback = client.create_producer("t", "shop", send_timeout_millis=1), Callback()

    def fail(*_: Any, **__: Any) -> None:  # noqa: ANN401 - as it is called
        monkeypatch.setattr(producer_inbox, "write_deltalake", write_deltalake)
        producer.send_async(b"behind", callback, sequence_id=2)
        raise OSError

    monkeypatch.setattr(producer_inbox, "write_deltalake", fail)
    producer.send_async(b"first", callback, sequence_id=1)
    producer.flush()
    assert callback.results == [Result.Timeout] * 2
    producer._route.senders[0].timeout_s = 30
    producer.send(b"first", sequence_id=1)
    producer.send(b"behind", sequence_id=2)
    assert payloads(root) == [b"behind", b"first"]

"""Hand-over between producers of one name: each number is in the inbox once, whoever was made when."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.client import Client
from pipeline.client.exceptions import ProducerBusy
from pipeline.client.producing.rows import sender_of
from pipeline.delta.deltars import open_table
from pipeline.subscriptions.letters import APPLICATION
from schemas import INBOX
from tests.support.producing import payloads


def stored(root: str, topic: str, name: str) -> int | None:
    """The number that the log has of a producer."""
    found: int | None = open_table(root, INBOX).transaction_version(sender_of(topic, name, {}).transaction)
    return found


@pytest.mark.parametrize("counted", [False, True])
def test_a_standby_that_was_made_early_sends_only_what_the_first_one_did_not(root: str, *, counted: bool) -> None:
    """It sends everything again with the same numbers; the log said nothing yet when it was made."""
    with Client(root) as one, Client(root) as two:
        first, standby = (each.create_producer("t", "shop", initial_sequence_id=-1) for each in (one, two))
        for number in range(3):
            first.send(b"%d" % number, sequence_id=None if counted else number)
        for number in range(5):
            standby.send(b"%d" % number, sequence_id=None if counted else number)
        assert standby.last_sequence_id() == 4
    assert payloads(root) == [b"0", b"1", b"2", b"3", b"4"]
    assert stored(root, "t", "shop") == 4


def test_a_standby_that_counts_is_told_of_the_first_one(root: str) -> None:
    """What it counts are other messages than those of the same numbers, so they are neither lost nor taken for sent."""
    with Client(root) as one, Client(root) as two:
        first, standby = one.create_producer("t", "shop"), two.create_producer("t", "shop")
        for number in range(3):
            first.send(b"%d" % number)
        with pytest.raises(ProducerBusy) as busy:
            standby.send(b"x")
        assert busy.value.stored == 2
        assert standby.send(b"3").is_sent
        with pytest.raises(ProducerBusy):
            first.send(b"y")
    assert payloads(root) == [b"0", b"1", b"2", b"3"]
    assert stored(root, "t", "shop") == 3


def test_a_producer_that_comes_back_after_another_one_sends_what_is_missing(root: str) -> None:
    """It was away while another one sent under its name, and its numbers do not make those of the log go back."""
    with Client(root) as one, Client(root) as two:
        first = one.create_producer("t", "shop")
        first.send(b"0", sequence_id=0)
        second = two.create_producer("t", "shop")
        for number in range(1, 4):
            second.send(b"%d" % number, sequence_id=number)
        for number in range(1, 6):
            first.send(b"%d" % number, sequence_id=number)
    assert payloads(root) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert stored(root, "t", "shop") == 5


def test_two_producers_of_one_name_in_one_client_send_each_number_once(root: str) -> None:
    """They share a writer, and their messages may share a commit."""
    with Client(root) as client:
        first, second = client.create_producer("t", "shop"), client.create_producer("t", "shop")
        other = client.create_producer("u", "shop")
        for number in range(4):
            first.send_async(b"%d" % number, None, sequence_id=number)
            other.send_async(b"u%d" % number, None, sequence_id=number)
        for number in range(6):
            second.send_async(b"%d" % number, None, sequence_id=number)
        for each in (first, second, other):
            each.flush()
    assert payloads(root) == [b"0", b"1", b"2", b"3", b"4", b"5", b"u0", b"u1", b"u2", b"u3"]
    assert (stored(root, "t", "shop"), stored(root, "u", "shop")) == (5, 3)


@pytest.mark.parametrize("name", [APPLICATION, "delayline-settle", "delayline-put-back t", "a:b", "a%3Ab", "ü\0"])
def test_the_name_of_a_producer_is_nobody_elses(root: str, name: str) -> None:
    """Settle, put-back and imports note numbers in the same log."""
    with Client(root) as client:
        for topic in ("t", "t:a", "t%3Aa"):
            client.create_producer(topic, name).send(b"1", sequence_id=7)
            assert stored(root, topic, name) == 7
        assert open_table(root, INBOX).transaction_version(name) is None
    assert len(payloads(root)) == 3

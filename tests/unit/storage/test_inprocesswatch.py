"""Threads of one process tell each other what they put into a store."""

from __future__ import annotations

from threading import Thread

from pipeline.storage.inprocesswatch import InProcessWatch, notify

ONE, OTHER = "s3a://bells/one", "s3a://bells/other"


def test_who_listens_hears_what_came_since_the_last_look() -> None:
    """Also what came between the look and the wait."""
    watch = InProcessWatch([ONE, OTHER])
    before = watch.state()
    notify(OTHER)
    assert watch.wait(60)
    assert [after - then for after, then in zip(watch.state(), before, strict=True)] == [0, 1]
    assert not watch.wait(0)


def test_what_others_ring_for_is_not_heard() -> None:
    """Each stage waits for its own source."""
    watch = InProcessWatch([ONE])
    watch.state()
    notify(OTHER)
    assert not watch.wait(0)


def test_a_wait_ends_when_it_is_rung() -> None:
    """By a thread that commits meanwhile."""
    watch = InProcessWatch([ONE])
    watch.state()
    ringing = Thread(target=notify, args=(ONE,))
    ringing.start()
    assert watch.wait(60)
    ringing.join()


def test_a_wait_ends_when_the_query_is_to_stop() -> None:
    """Whoever stops a query wakes its clock; the wake is used up then."""
    watch = InProcessWatch([ONE])
    watch.state()
    watch.wake()
    assert not watch.wait(60)
    assert not watch.wait(0)

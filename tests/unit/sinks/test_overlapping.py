"""What becomes visible together is published in one order, however parts and files overlap, by whoever was away."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from tests.support.dispatching import Dispatching, T
from tests.support.sinks import MemoryBroker, ahead, run


@pytest.mark.parametrize("most", [1, 1 << 30])
def test_parts_that_overlap_and_are_visible_are_published_in_the_order_in_which_they_are_due(
    dispatch: Dispatching, most: int
) -> None:
    """A sink that was away finds them in one version, whatever batch they are of; and so does the next process."""
    broker = MemoryBroker()
    dispatch.prepare(1, [(T + 10, "a"), (T + 30, "d")], [(T + 40, "f")])
    loop = ahead(dispatch, broker, most)
    dispatch.prepare(2, [(T + 20, "b"), (T + 35, "e")], [(T + 25, "c"), (T + 50, "g")])
    dispatch.now = T + 60
    dispatch.publish()
    for _ in range(3):
        loop.step()
        loop = ahead(dispatch, broker, most)
    run(loop)
    assert broker.payloads == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


@pytest.mark.parametrize("most", [1, 1 << 30])
def test_a_version_that_names_no_parts_is_published_in_the_order_in_which_it_is_due(
    dispatch: Dispatching, most: int
) -> None:
    """However its files overlap."""
    broker = MemoryBroker()
    loop = ahead(dispatch, broker, most)
    files = [[(T + 10, "a"), (T + 40, "d")], [(T + 20, "b"), (T + 30, "c")], [(T + 35, "x")]]
    dispatch.show(*files)
    dispatch.now = T + 60
    for _ in range(3):
        loop.step()
        loop = ahead(dispatch, broker, most)
    run(loop)
    assert broker.payloads == [b"a", b"b", b"c", b"x", b"d"]


def test_what_a_sink_had_taken_up_keeps_its_turn_when_it_is_visible_with_more(dispatch: Dispatching) -> None:
    """Of a version some parts were known from the shelf; the others come in one order."""
    broker = MemoryBroker(keeps_place=False)
    dispatch.prepare(1, [(T + 10, "a"), (T + 40, "d")])
    loop = ahead(dispatch, broker)
    dispatch.now = T + 15
    run(loop)
    dispatch.prepare(2, [(T + 20, "b"), (T + 35, "e")])
    dispatch.prepare(3, [(T + 25, "c"), (T + 50, "f")])
    dispatch.now = T + 60
    dispatch.publish()
    for _ in range(3):
        loop = ahead(dispatch, broker)
        loop.step()
    run(ahead(dispatch, broker))
    assert broker.payloads == [b"a", b"d", b"b", b"c", b"e", b"f"]

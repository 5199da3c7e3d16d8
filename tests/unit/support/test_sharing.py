"""Which process gets which file of tests."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

from tests.support.sharing import Shared

BROKERS = ["tests/stream/test_kafka_source.py::test_a", "tests/stream/test_kafka_sink.py::test_b"]
SESSIONS = [f"tests/{tier}/test_{number}.py::test_c" for tier in ("spark", "stream") for number in range(8)]
OTHERS = [f"tests/{tier}/test_{number}.py::test_d" for tier in ("unit", "smoke") for number in range(4)]
ALL = [*OTHERS, *SESSIONS, *BROKERS]


class Process:
    """A process of xdist that runs what it is given, one test at a time."""

    def __init__(self, number: int) -> None:
        """It has done nothing."""
        self.gateway, self.given, self.shutting_down = SimpleNamespace(id=f"gw{number}"), list[int](), False

    def send_runtest_some(self, indices: list[int]) -> None:
        """Take tests in."""
        self.given += indices

    def shutdown(self) -> None:
        """Take no more."""
        self.shutting_down = True


def done_by(count: int, lazy: int) -> list[list[str]]:
    """What each process runs when each has its turn, but for one that never finishes anything."""
    option = SimpleNamespace(loadscopereorder=False)
    sharing: Any = Shared(SimpleNamespace(getvalue=lambda _: [f"{count}*popen"], option=option))
    nodes = [Process(number) for number in range(count)]
    for node in nodes:
        sharing.add_node(node)
        sharing.add_node_collection(node, ALL)
    sharing.schedule()
    for place in range(len(ALL)):
        for number, node in enumerate(nodes):
            if number != lazy and place < len(node.given):
                sharing.mark_test_complete(node, node.given[place])
    return [[ALL[index] for index in node.given] for node in nodes]


def test_the_last_of_three_processes_needs_no_session_of_spark() -> None:
    """A third session would cost more than it brings."""
    done = done_by(3, lazy=0)
    assert set(done[2]) <= set(OTHERS)
    assert sorted(chain(*done)) == sorted(ALL)
    assert set(done[0] + done[1]) >= {*SESSIONS, *BROKERS}


def test_whoever_has_a_session_takes_the_rest_when_its_own_files_are_done() -> None:
    """Two processes do not wait for the third."""
    done = done_by(3, lazy=2)
    assert set(done[0] + done[1]) & set(OTHERS)
    assert sorted(chain(*done)) == sorted(ALL)


def test_two_processes_share_all_files() -> None:
    """Each may have a session then."""
    done = done_by(2, lazy=2)
    assert all(set(each) & {*SESSIONS, *BROKERS} for each in done)
    assert sorted(chain(*done)) == sorted(ALL)


def test_files_with_a_broker_of_one_kind_stay_together() -> None:
    """The broker starts once."""
    assert sum(bool(set(each) & set(BROKERS)) for each in done_by(3, lazy=2)) == 1

"""Which process gets which file of tests."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

from tests.support.sharing import Shared

BROKERS = ["tests/stream/test_kafka_source.py::test_a", "tests/stream/test_kafka_sink.py::test_b"]
OTHERS = [f"tests/{tier}/test_{number}.py::test_c" for tier in ("smoke", "unit") for number in range(4)]
SESSIONS = [f"tests/{tier}/test_{number}.py::test_d" for tier in ("stream", "spark") for number in range(8)]
ALL = [*OTHERS[:4], *BROKERS, *SESSIONS, *OTHERS[4:]]
HOUSE = [f"tests/unit/house/test_{number}.py::test_f" for number in range(9)]
MANY = [*ALL, *(f"tests/unit/many/test_{number}.py::test_e" for number in range(20)), *HOUSE]
"""Most files need no session."""


class Process:
    """A process of xdist: it runs a test when it knows the one behind it, or that there is none."""

    def __init__(self, number: int) -> None:
        """It has done nothing."""
        self.gateway, self.given, self.shutting_down = SimpleNamespace(id=f"gw{number}"), list[int](), False
        self.done = 0

    def send_runtest_some(self, indices: list[int]) -> None:
        """Take tests in."""
        self.given += indices

    def shutdown(self) -> None:
        """Take no more."""
        self.shutting_down = True

    @property
    def may_run(self) -> bool:
        """Whether it runs its next test now."""
        return self.done < len(self.given) - (not self.shutting_down)


def run(sharing: Any, nodes: list[Process], lazy: Process | None = None) -> list[list[str]]:  # noqa: ANN401 - untyped
    """What each process runs when each has its turn, but for one that waits until nobody else has anything to do."""
    while ready := [node for node in nodes if node.may_run]:
        for node in [each for each in ready if each is not lazy] or ready[:1]:
            node.done += 1
            sharing.mark_test_complete(node, node.given[node.done - 1])
        for node in nodes if sharing.tests_finished else ():
            node.shutdown()
    return [[MANY[index] for index in node.given[: node.done]] for node in nodes]


def begun(count: int, tests: list[str] = ALL) -> tuple[Any, list[Process]]:
    """So many processes that have their first files."""
    option = SimpleNamespace(loadscopereorder=False)
    sharing = Shared(SimpleNamespace(getvalue=lambda _: [f"{count}*popen"], option=option))
    nodes = [joined(sharing, number, tests) for number in range(count)]
    sharing.schedule()
    return sharing, nodes


def joined(sharing: Any, number: int, tests: list[str] = ALL) -> Process:  # noqa: ANN401 - as above
    """A process that has looked which tests there are."""
    node = Process(number)
    sharing.add_node(node)
    sharing.add_node_collection(node, tests)
    return node


def test_the_last_of_three_processes_needs_no_session_of_spark() -> None:
    """A third session would cost more than it brings."""
    sharing, nodes = begun(3)
    done = run(sharing, nodes, lazy=nodes[0])
    assert set(done[2]) <= set(OTHERS)
    assert sorted(chain(*done)) == sorted(ALL)


def test_one_process_has_a_session_where_most_files_need_none() -> None:
    """A second one would get warm anew. The first takes other files when its own are done."""
    for lazy in range(3):
        sharing, nodes = begun(3, MANY)
        done = run(sharing, nodes, lazy=nodes[lazy])
        assert not set(done[1] + done[2]) & {*SESSIONS, *BROKERS}
        assert sorted(chain(*done)) == sorted(MANY)
    assert done[0][-1] not in {*SESSIONS, *BROKERS}


def test_a_process_with_the_only_session_that_died_gives_it_to_the_one_in_its_place() -> None:
    """The others still have none."""
    sharing, nodes = begun(3, MANY)
    sharing.remove_node(nodes[0])
    nodes[0] = joined(sharing, 3, MANY)
    sharing.schedule()
    done = run(sharing, nodes)
    assert not set(done[1] + done[2]) & {*SESSIONS, *BROKERS}
    assert set(chain(*done)) == set(MANY)


def test_the_last_process_runs_all_that_it_has_when_there_is_nothing_more_for_it() -> None:
    """A process runs a test when it knows the one behind it; else the last one would come when the others are done."""
    sharing, nodes = begun(3)
    run(sharing, nodes[2:])
    assert nodes[2].done == len(OTHERS)
    assert sharing.has_pending


def test_whoever_has_a_session_takes_the_rest_when_its_own_files_are_done() -> None:
    """Two processes do not wait for the third."""
    sharing, nodes = begun(3)
    done = run(sharing, nodes, lazy=nodes[2])
    assert set(done[0] + done[1]) & set(OTHERS)
    assert sorted(chain(*done)) == sorted(ALL)


def test_a_process_in_the_place_of_one_that_died_takes_its_part() -> None:
    """Files that make a session of their own do not come behind those that need the one of the process."""
    sharing, nodes = begun(3)
    sharing.remove_node(nodes[2])
    nodes[2] = joined(sharing, 3)
    sharing.schedule()
    done = run(sharing, nodes)
    assert set(done[2]) <= set(OTHERS)
    assert set(chain(*done)) == set(ALL)


def test_one_or_two_processes_take_the_files_in_their_order() -> None:
    """Each has a session in the end, and what makes one of its own comes before."""
    for count in (1, 2):
        done = run(*begun(count))
        assert all(each == sorted(each, key=ALL.index) for each in done)
        assert sorted(chain(*done)) == sorted(ALL)


def test_files_with_a_broker_of_one_kind_stay_together() -> None:
    """The broker starts once."""
    assert sum(bool(set(each) & set(BROKERS)) for each in run(*begun(3))) == 1


def test_files_about_the_project_stay_together() -> None:
    """Its modules are parsed once."""
    assert sum(bool(set(each) & set(HOUSE)) for each in run(*begun(3, MANY))) == 1

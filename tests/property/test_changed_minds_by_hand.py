"""Some ways to change one's mind that once went wrong, on the machine of `test_changed_minds`."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from schemas import CANCELLED, HELD, SEGMENTS
from tests.property.test_changed_minds import Minds
from tests.support.changed_minds import Place


def scripted() -> Minds:
    """A machine with two messages, which a test moves by hand; its `teardown` is the check."""
    machine = Minds()
    machine.begin(delays=[8, 9], horizon=0)
    return machine


def test_what_happened_before_settle_first_looked_counts() -> None:
    """A subscription acknowledges since before its messages came: what dispatch left out comes, and a nack counts."""
    machine = scripted()
    machine.tick(10)
    machine.reschedule({0}, None, 30)
    machine.dispatch()
    machine.consume(0, ack=False)
    machine.teardown()
    first, second = machine.keys
    found = {each.of: each.round for each in machine.delivered if each.of.name == "s"}
    assert found == {Place("s", first, 0): 1, Place("s", second, 0): 0, Place("s", second, 1): 1}


def left_out_before_its_undo(machine: Minds) -> None:
    """A message is cancelled, and dispatch has decided when that is taken back."""
    machine.cancel({0}, "plain")
    machine.tick(10)
    machine.undo(0, meanwhile=True)
    machine.teardown()
    first, _ = machine.keys
    assert machine.fates[Place("plain", first, 0)].decided == CANCELLED


def test_an_undo_that_was_written_after_dispatch_had_decided_came_too_late() -> None:
    """The message stays cancelled, and nothing says that it is pending."""
    left_out_before_its_undo(scripted())


def test_of_two_undos_of_a_message_that_was_left_out_the_last_one_came_too_late() -> None:
    """The first one did what it says: somebody cancelled the message again before dispatch had it."""
    machine = scripted()
    machine.cancel({0}, "plain")
    machine.undo(0)
    left_out_before_its_undo(machine)


def test_what_was_held_comes_once_when_an_operator_changes_the_table_before_a_dead_dispatch_is_back() -> None:
    """A version of `held` without a note passed for that of the batch that had died: what it took out came twice."""
    machine = scripted()
    machine.pause_or_resume("plain")
    machine.tick(10)
    machine.dispatch()
    machine.pause_or_resume("plain")
    machine.dispatch(death="dispatch.shelved")
    machine.change(HELD.name, 3, vacuum=False)
    machine.teardown()


def test_what_failed_comes_once_when_a_log_is_cut_before_a_dead_settle_is_back() -> None:
    """Its last commit to `segments` was forgotten, and made once more."""
    machine = scripted()
    machine.tick(10)
    machine.settle()
    machine.dispatch()
    machine.consume(0, ack=False)
    machine.settle(death="settle.segments")
    for _ in range(3):
        machine.send([60])
        machine.change(SEGMENTS.name, 2, vacuum=False)
    machine.tick(1)
    machine.cut(SEGMENTS.name)
    machine.teardown()

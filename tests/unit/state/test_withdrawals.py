"""What commands withdraw: cancels and undos, in any order and as often as they come."""

from __future__ import annotations

from state.positionset import PositionSet
from state.withdrawals import Round, Withdrawals, count, left
from tests.support.settled import at

FIRST, OTHER = Round("t", "s", 1, 0), Round("t", "s", 2, 0)


def entries(*runs: tuple[int, int, int]) -> PositionSet:
    """Positions by (ledger, first entry, last entry)."""
    return PositionSet.of(at(*runs))


def test_sets_of_positions_are_joined_and_parted_by_ledger() -> None:
    """Equal sets are equal whatever runs they were made of; what is empty is nowhere."""
    one, two = entries((1, 0, 9), (2, 5, 5)), entries((1, 5, 14), (3, 0, 0))
    assert (one | two) == entries((1, 0, 4), (1, 5, 14), (2, 5, 5), (3, 0, 0))
    assert (one & two) == entries((1, 5, 9))
    assert (one - two) == entries((1, 0, 4), (2, 5, 5))
    assert (len(one), len(two), len(one - one)) == (11, 11, 0)
    assert (one - one).positions().runs() == []
    assert (one | two).positions().runs() == [(1, 0, 14), (2, 5, 5), (3, 0, 0)]


def test_nothing_of_what_was_joined_changes() -> None:
    """Sets are shared between commands."""
    one, two = entries((1, 0, 9)), entries((1, 5, 14))
    assert len(PositionSet.union([one, two])) == 15
    assert one == entries((1, 0, 9))


def test_what_is_in_force_is_each_cancel_less_its_own_undos() -> None:
    """An undo of one command leaves what another one withdraws."""
    said = Withdrawals()
    said.cancel("a", FIRST, entries((1, 0, 9)))
    said.cancel("b", FIRST, entries((1, 5, 6)))
    said.undo("a", FIRST, entries((1, 4, 6)))
    assert said.in_force() == {FIRST: entries((1, 0, 3), (1, 5, 9))}
    said.undo("b", FIRST, entries((1, 5, 5)))
    assert said.in_force() == {FIRST: entries((1, 0, 3), (1, 6, 9))}


def test_an_undo_may_come_before_its_cancel_and_both_may_come_twice() -> None:
    """Files are merged, appends are repeated: order and number say nothing."""
    said = Withdrawals()
    for _ in range(2):
        said.undo("a", FIRST, entries((1, 0, 0)))
        said.cancel("a", FIRST, entries((1, 0, 1)))
    assert said.in_force() == {FIRST: entries((1, 1, 1))}


def test_lives_are_told_apart_and_what_is_undone_as_a_whole_is_gone() -> None:
    """A position of another life is another one."""
    said = Withdrawals()
    said.cancel("a", FIRST, entries((1, 0, 0)))
    said.cancel("a", OTHER, entries((1, 0, 0)))
    said.undo("a", FIRST, entries((1, 0, 5)))
    assert said.in_force() == {OTHER: entries((1, 0, 0))}
    assert count(said.cancelled["a"]) == 2
    assert left(said.cancelled["a"], said.undone["a"]) == said.in_force()

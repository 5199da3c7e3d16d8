"""Who listens to a batch: the same answer as a whole comparison, without making one for each batch."""

from collections.abc import Iterator, Mapping
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from pipeline.ingest.segments import Membership, MembershipCache
from pipeline.subscriptions.incarnations import Incarnation, Name, Subscription, next_lives

NAMES = [("t", "a"), ("t", "b"), ("u", "a")]
LINE = st.builds(lambda tick, earliest: (tick, earliest), st.sampled_from([1, 10, 7_000_000_000]), st.booleans())
REGISTRY = st.dictionaries(st.sampled_from(NAMES), LINE)


def lines(registry: dict[Name, tuple[int, bool]]) -> dict[Name, Subscription]:
    """The registry as ingest reads it."""
    return {name: Subscription(*name, tick, earliest=earliest) for name, (tick, earliest) in registry.items()}


def batches(states: list[dict[Name, tuple[int, bool]]], each: int) -> Iterator[dict[Name, Subscription]]:
    """The registry of each batch: one object while it does not move, as the registry's reader gives it."""
    for state in states:
        held = lines(state)
        yield from [held] * each


@given(st.lists(REGISTRY, max_size=6), st.integers(1, 4), st.sets(st.sampled_from(NAMES)))
def test_each_batch_has_the_membership_of_a_whole_comparison(
    states: list[dict[Name, tuple[int, bool]]], each: int, back: set[Name]
) -> None:
    """Joining, leaving, coming back unseen and refused ticks, with some batches between the moves."""
    cache = MembershipCache()
    lives: Mapping[Name, Incarnation] = {}
    for ledger, registered in enumerate(batches(states, each)):
        gone = frozenset(back) if ledger % (each + 1) == each else frozenset()
        members = cache.at(registered, lives, ledger, gone)
        assert members == Membership.of(registered, lives, ledger, gone)
        lives = next_lives(lives, members.joined, members.left)


def test_batches_without_a_move_compare_nothing() -> None:
    """A hundred batches, two comparisons: the first one, and the one that sees that those who joined are known."""
    registered, cache = lines({("t", "a"): (1, False)}), MembershipCache()
    lives: Mapping[Name, Incarnation] = {}
    with patch.object(Membership, "of", side_effect=Membership.of) as compared:
        for ledger in range(100):
            members = cache.at(registered, lives, ledger, frozenset())
            lives = next_lives(lives, members.joined, members.left)
    assert compared.call_count == 2

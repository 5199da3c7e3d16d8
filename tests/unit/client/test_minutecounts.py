"""Messages by minute as arrays: they say what dictionaries would."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.client.insight.minutecounts import ListenerMinutes, MinuteCounts
from pipeline.config.settings import MINUTE_MS

LAST = 4_223_376_839
"""The last minute that a due time may be in."""
Plain = dict[tuple[int, int], int]
counted = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 5) | st.just(LAST)), st.integers(-3, 3).filter(bool), max_size=12
)


def arrays(plain: Plain) -> ListenerMinutes:
    """Counts by listener and minute, as a query gives them."""
    rows = sorted((*key, count) for key, count in plain.items())
    names = ("listener", "minute", "messages")
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return ListenerMinutes.of_rows(
        pa.table({name: pa.array(each, pa.int64()) for name, each in zip(names, columns, strict=True)})
    )


def of(plain: Plain, listener: int) -> dict[int, int]:
    """The minutes of a listener, by their starts."""
    return {minute * MINUTE_MS: count for (number, minute), count in sorted(plain.items()) if number == listener}


@given(counted, counted)
def test_arrays_are_added_as_counters_are(some: Plain, others: Plain) -> None:
    """What comes to nothing is not there; what is below nothing is not pending."""
    total = Counter(some)
    total.update(others)
    left = {key: count for key, count in total.items() if count}
    found = arrays(some) + arrays(others)
    assert list(found.by_listener(4)) == [of(left, number) for number in range(4)]
    pending = {key: count for key, count in left.items() if count > 0}
    assert list(found.positive().by_listener(4)) == [of(pending, number) for number in range(4)]
    firsts = {number: min(of(pending, number)) for number, _ in pending}
    assert found.positive().firsts() == firsts


@given(
    st.lists(st.dictionaries(st.integers(0, 6), st.integers(1, 9)), max_size=4), st.integers(0, 7), st.integers(0, 7)
)
def test_counts_of_several_read_as_one_mapping(parts: list[dict[int, int]], begin: int, end: int) -> None:
    """Plain dictionaries among them."""
    total = Counter[int]()
    for each in parts:
        total.update(each)
    found = MinuteCounts.together([dict(sorted(each.items())) for each in parts])
    assert found == total
    assert (list(found), list(found.values())) == (sorted(total), [total[at] for at in sorted(total)])
    assert all(found[at] == count for at, count in total.items())
    assert 7 not in found
    assert found.within(begin, end) == sum(count for at, count in total.items() if begin <= at < end)
    assert MinuteCounts.together([found, found]) == {at: 2 * count for at, count in total.items()}


def test_counts_are_shown_as_a_dictionary() -> None:
    """For who prints what is pending."""
    assert repr(MinuteCounts(np.array([60_000]), np.array([7]))) == "{60000: 7}"
    with pytest.raises(KeyError):
        MinuteCounts(np.array([60_000]), np.array([7]))[0]

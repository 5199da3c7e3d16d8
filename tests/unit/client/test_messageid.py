"""Ids of messages: which of two is before the other."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.message import MessageId

BEFORE, BEHIND = (operator.lt, operator.le), (operator.gt, operator.ge)


def test_ids_are_ordered_as_the_log_is() -> None:
    """By ledger, then by entry; whatever a topic holds lies between its earliest and its latest."""
    ids = [MessageId.earliest, *(MessageId.of("t", *place) for place in ((0, 9), (1, 0), (1, 2))), MessageId.latest]
    assert sorted([*ids[2:], *ids[:2]]) == ids
    for first, second in pairwise(ids):
        assert all(is_so(first, second) and not is_so(second, first) for is_so in BEFORE)
        assert all(is_so(second, first) and not is_so(first, second) for is_so in BEHIND)
    assert ids[1] <= MessageId(-1, 0, 9)
    assert ids[1] >= MessageId(-1, 0, 9)


@pytest.mark.parametrize("compared", [*BEFORE, *BEHIND])
@pytest.mark.parametrize("other", [MessageId.sent("t", "shop", 1), (1, 1)])
def test_an_id_has_no_order_with_what_is_no_position(compared: Callable[[Any, Any], bool], other: object) -> None:
    """What a producer says of its message is no position; to compare them would be wrong without a word."""
    with pytest.raises(TypeError):
        compared(MessageId.of("t", 1, 1), other)
    assert MessageId.of("t", 1, 1) != other

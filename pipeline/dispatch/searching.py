"""The search for the messages on which a guard fails: by questions about parts of them, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.guards import NUMBER, GuardFailed

QUESTIONS, SEARCH_MS = 200, 2_000
"""To find the messages on which a guard fails, it is asked so often in a batch, and for no longer than so."""
_NONE = np.empty(0, np.int64)


class Found(NamedTuple):
    """What a search has found.

    Attributes:
        met: the numbers of the messages that meet the guard.
        undecided: of those on which it fails, or which were not asked about in the end.
        failed: how it failed last; None: it did not.
        slow: the numbers of those about which it was asked last when that took so long that the search was over, or
            ended the process that evaluates guards.
    """

    met: IntArray
    undecided: IntArray
    failed: GuardFailed | None
    slow: IntArray


def searched(ask: Callable[[pa.Table], IntArray], parts: Sequence[pa.Table]) -> Found:
    """Which messages meet a guard, and on which it fails: these are found by halves, within bounds.

    Of a part on which it fails both halves are asked about before it is looked at more closely. So most messages are
    decided after a few questions, wherever those are on which it fails. When it ends the process that evaluates guards,
    nobody waits for the next one: the search is over.

    Args:
        ask: evaluates the guard on rows; the numbers of those that meet it.
        parts: the messages, with a column `NUMBER`, in parts that are asked about one after the other.

    Raises:
        GuardFailed: it fails on no message, too. That is not asked when the process has ended.
    """
    met, undecided, failing, new = [_NONE], [_NONE], list[pa.Table](), list(reversed(parts))
    failed: GuardFailed | None = None
    slow, questions, spent_ms, hopeless = _NONE, 0, 0, 2 * sum(part.num_rows for part in parts).bit_length() + 8
    while new or failing:
        if not new:
            part = failing.pop()
            new = _halves(part) if spent_ms < SEARCH_MS else []
            undecided += [] if new else [longs(part, NUMBER)]
            continue
        part = new.pop()
        # The last part at hand is asked about also when time is over: of two halves the other one may be all right.
        if questions >= QUESTIONS or hopeless < 0 or len(slow) or (spent_ms >= SEARCH_MS and new):
            undecided.append(longs(part, NUMBER))
            continue
        questions += 1
        try:
            met.append(ask(part))
            hopeless = QUESTIONS
        except GuardFailed as error:
            if failed is None and not error.ended:
                ask(part.slice(0, 0))
            failed, spent_ms, hopeless = error, spent_ms + error.took_ms, hopeless - 1
            failing.append(part)
            slow = longs(part, NUMBER) if error.ended or error.took_ms >= SEARCH_MS else _NONE
    return Found(np.concatenate(met), np.concatenate(undecided), failed, slow)


def _halves(rows: pa.Table) -> list[pa.Table]:
    """Two halves of rows; none of a single one."""
    middle = rows.num_rows // 2
    return [rows.slice(0, middle), rows.slice(middle)] if middle else []


def growing(rows: pa.Table) -> list[pa.Table]:
    """Parts of one row, of two, of four and so on: so the first of them are asked about one by one."""
    return [rows.slice(begin - 1, begin) for begin in (1 << n for n in range(rows.num_rows.bit_length()))]

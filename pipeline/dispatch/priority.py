"""Priorities: a number in a property of each message says which comes first of those that are due in one bucket.

The rule stands here twice, for arrays and for Spark: `tests/spark/dispatch/test_release.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.lazyspark import F
from pipeline.dispatch.core.holding import rows_of_subscriptions
from pipeline.storage.arrays import IntArray
from pipeline.storage.gather import Texts
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.policies import Policies

if TYPE_CHECKING:
    from pyspark.sql import Column

Priorities = Mapping[Name, str]
"""The property that has the priority of a message, for each subscription that asks for an order by it."""
NO_PRIORITIES: Priorities = {}
_NUMBER = r"\A-?[0-9]{1,9}\z"
"""What is a priority; anything else counts as 0."""
RANK = "rank"
"""Spark's column with the priority, less than 0 for what comes first."""


def priorities_of(shapings: Mapping[Name, Policies]) -> Priorities:
    """By which properties subscriptions are ordered."""
    return {name: each.priority for name, each in shapings.items() if each.priority is not None}


def rank(priorities: Priorities, runs: pa.Table, run: IntArray, texts: Texts, message: IntArray) -> IntArray:
    """The rank of each position: the higher its priority, the lower.

    Args:
        priorities: by which properties subscriptions are ordered; the texts of others are not read.
        runs: rows of `redelivery`.
        run: the number of its run, for each position.
        texts: the texts of messages.
        message: the number of its message, for each position.
    """
    found = np.zeros(len(run), np.int64)
    for name, named in priorities.items():
        chosen = np.flatnonzero(np.isin(run, rows_of_subscriptions(runs, {name: named})))
        if len(chosen):
            properties = texts.take(message[chosen]).column("properties").combine_chunks()
            found[chosen] = -_numbers(pc.map_lookup(properties, pa.scalar(named), "first"))
    return found


def _numbers(said: pa.Array) -> IntArray:
    sound = pc.match_substring_regex(said, _NUMBER)
    numbers = pc.if_else(pc.fill_null(sound, fill_value=False), said, pa.scalar("0", said.type))
    found: IntArray = numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def rank_column(priorities: Priorities) -> Column:
    """The priorities of rows with the columns `topic`, `subscription` and `properties`."""
    found = F.lit(0).cast("bigint")
    for (topic, name), named in priorities.items():
        said = F.try_element_at("properties", F.lit(named))
        own = (F.col("topic") == topic) & (F.col("subscription") == name) & said.rlike(_NUMBER)
        found = F.when(own, -said.cast("bigint")).otherwise(found)
    return found

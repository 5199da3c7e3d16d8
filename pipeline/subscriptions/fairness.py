"""Between whose messages a subscription takes turns, and how many each has in its turn (`state.turns`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Self

import numpy as np
import pyarrow as pa

from pipeline.config.errors import BadValue
from pipeline.storage.arrays import IntArray

KEY, _PROPERTY = "key", "property:"
FAIR = f"{KEY}, or {_PROPERTY}NAME, a property of messages"
"""By what turns may be taken, for people."""
MAX_WEIGHT, MAX_WEIGHTS = 1_000, 1_000
WEIGHTS = f"values with whole numbers from 1 to {MAX_WEIGHT:,}, as gold=3, silver=2; {MAX_WEIGHTS:,} values at most"
"""What weights are, for people."""
NOBODY = 0
"""The number of messages that have no such key or property. They are one value together."""
_BITS = 63


@dataclass(frozen=True)
class FairRule:
    """Whose turn a message waits for, and the weights of those that have other ones than 1.

    Attributes:
        property_name: by what this property has; None: by the key.
        weights: values, and their weights.
    """

    property_name: str | None = None
    weights: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_texts(cls, by: str, weights: str | None) -> Self:
        """From policies.

        Raises:
            BadValue: they say no such thing.
        """
        name = by.removeprefix(_PROPERTY).strip()
        if by != KEY and (not by.startswith(_PROPERTY) or not name):
            raise BadValue("fair_by", by, FAIR)
        return cls(None if by == KEY else name, tuple(_weights(weights)) if weights is not None else ())

    @property
    def column(self) -> str:
        """The column of `messages` that tells it."""
        return "message_key" if self.property_name is None else "properties"

    def weigh(self, values: IntArray) -> IntArray:
        """The weights of values, by their numbers, ascending."""
        found, (own, weights) = np.ones(len(values), np.int64), self._weighed
        place = np.searchsorted(values, own)
        there = np.flatnonzero(place < len(values))
        there = there[values[place[there]] == own[there]]
        found[place[there]] = weights[there]
        return found

    @cached_property
    def _weighed(self) -> tuple[IntArray, IntArray]:
        own = np.array([number_of(value.encode()) for value, _ in self.weights], np.int64)
        return own, np.array([weight for _, weight in self.weights], np.int64)


def number_of(text: bytes | None) -> int:
    """The number of a value: the same in each process and each release."""
    if text is None:
        return NOBODY
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> (64 - _BITS)


def numbers_of(texts: pa.Array) -> IntArray:
    """The numbers of values, which are texts or bytes; NULL: there is none."""
    coded = texts.cast(pa.binary()).dictionary_encode()
    known = np.array([*map(number_of, coded.dictionary.to_pylist()), NOBODY], np.int64)
    places: IntArray = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return known[places]


def _weights(text: str) -> Iterator[tuple[str, int]]:
    parts, seen = text.split(","), set[str]()
    for part in parts:
        value, _, weight = (each.strip() for each in part.rpartition("="))
        fits = weight.isascii() and weight.isdecimal() and 1 <= int(weight[:9]) <= MAX_WEIGHT
        if not value or not fits or value in seen or len(parts) > MAX_WEIGHTS:
            raise BadValue("fair_weights", part.strip()[:100], WEIGHTS)
        seen.add(value)
        yield value, int(weight)

"""To which partition of its topic a message goes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count
from zlib import crc32

from pipeline.client.choices import PartitionsRoutingMode
from pipeline.client.producing.rows import Sender


class Route:
    """The senders of a producer: one, or one for each partition.

    A key always goes to the same partition, until there are more of them. Without a key partitions take turns, or all
    messages go to one that is drawn.

    Attributes:
        senders: in the order of partitions.
    """

    def __init__(self, senders: Sequence[Sender], mode: PartitionsRoutingMode) -> None:
        """Begin with these partitions."""
        self.senders = list(senders)
        self._turn = None if mode is PartitionsRoutingMode.UseSinglePartition else count()
        self._single = random.randrange(len(self.senders))  # noqa: S311 - spreads producers, not a secret

    def of(self, key: str | None) -> Sender:
        """The sender of a message."""
        senders = self.senders
        if len(senders) == 1:
            return senders[0]
        if key is not None:
            return senders[crc32(key.encode()) % len(senders)]
        return senders[(self._single if self._turn is None else next(self._turn)) % len(senders)]

    def grow(self, topics: Sequence[str], make: Callable[[str], Sender]) -> None:
        """Take partitions that are new."""
        known = {each.topic for each in self.senders}
        new = [make(each) for each in topics if each not in known]
        self.senders = [*self.senders, *new]

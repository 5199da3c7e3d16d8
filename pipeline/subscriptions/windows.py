"""Windows of topics, and open hours of subscriptions: whose clock counts, and what comes when.

Of a topic that is its own clock, or that of each recipient, and due times obey it. Who decides when a message comes
asks here: ingest of what is sent, settle of what comes again, the client of what a command moves. The open hours of a
subscription say when dispatch lets go what is due; a forecast asks, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Self
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.config.errors import BadValue
from pipeline.config.zones import zone, zone_names
from pipeline.storage.arrays import IntArray
from state import InvalidArgument
from state.windows import Openings, Window

UTC_ZONE = "UTC"
ZONES = (
    "the name of a time zone, as Europe/Rome, or property:NAME, the property that has the zone of a recipient; behind "
    "that and a comma, the zone of those who have none"
)
"""What a zone of a window is, for people."""
ZONE_BYTES = 64
"""No zone has a longer name, so no more of a property is looked at."""
_PROPERTY = "property:"
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ZoneRule:
    """Whose clock counts for a topic.

    Attributes:
        own: the name of the topic's own zone.
        property: the property that has the name of a recipient's zone; None: the topic's own counts for all.
    """

    own: str
    property: str | None = None

    @classmethod
    def of_text(cls, text: str) -> Self:
        """From a zone, `property:NAME`, or `property:NAME, ZONE`. Behind the last comma is a zone.

        Raises:
            BadValue: it is none of these.
        """
        if not text.startswith(_PROPERTY):
            return cls(_own(text, text))
        name, comma, own = text.removeprefix(_PROPERTY).rpartition(",")
        name = (name if comma else own).strip()
        if not name:
            raise BadValue("window_zone", text, ZONES)
        return cls(_own(text, own.strip() if comma else UTC_ZONE), name)


@dataclass(frozen=True)
class TopicWindow:
    """When messages of a topic may come.

    Attributes:
        window: the times of the week.
        zone: whose clock counts.
        spread_ms: what has to wait is spread over so long a time behind the opening.
    """

    window: Window
    zone: ZoneRule
    spread_ms: int = 0

    @classmethod
    def of_texts(cls, window: str, zone: str, spread_ms: int, closed: frozenset[date] = frozenset()) -> Self:
        """From policies, and the days on which it stays closed.

        Raises:
            BadValue: the window or the zone is none.
        """
        try:
            return cls(replace(Window.of_text(window), closed=closed), ZoneRule.of_text(zone), spread_ms)
        except InvalidArgument as error:
            raise BadValue(error.field, error.value, error.allowed) from error

    def put_off(
        self, times: IntArray, hashes: IntArray, bits: int = 0, zones: pa.Array | pa.ChunkedArray | None = None
    ) -> IntArray:
        """Due times as they are where the window is open then, else in its next opening.

        Args:
            times: when messages would come, ms UTC.
            hashes: `state.windows.place_hashes` of their positions.
            bits: of the widest bucket of those who listen (`tick_bits`).
            zones: names of the recipients' zones, as texts or bytes; NULL: nothing is known. None: nobody has one.
        """
        if zones is None:
            return self._put_off(times, zone(self.zone.own), hashes, bits)
        moved = times.copy()
        for own, here in _by_zone(zones):
            moved[here] = self._put_off(times[here], own or zone(self.zone.own), hashes[here], bits)
        return moved

    def _put_off(self, times: IntArray, own: ZoneInfo, hashes: IntArray, bits: int) -> IntArray:
        return self.window.put_off(times, own, hashes, self.spread_ms, bits)


@dataclass(frozen=True)
class OpenHours:
    """When what is due for a subscription may come.

    Attributes:
        window: the times of the week.
        zone: the name of the zone whose clock counts.
    """

    window: Window
    zone: str

    @classmethod
    def of_texts(cls, hours: str, zone_name: str) -> Self:
        """From policies.

        Raises:
            BadValue: the hours or the zone are none.
        """
        if zone_name not in zone_names():
            raise BadValue("open_zone", zone_name, "the name of a time zone, as Europe/Rome, or UTC")
        try:
            return cls(Window.of_text(hours), zone_name)
        except InvalidArgument as error:
            raise BadValue("open", error.value, error.allowed) from error

    def opening(self, at: int) -> tuple[int, int]:
        """The opening that an instant is in, else the next one: its first instant, and the first one behind it (ms)."""
        return self.window.opening(zone(self.zone), at)

    def closed_until(self, at: int) -> int | None:
        """When it opens next, ms UTC; None: it is open at that instant."""
        opens, _ = self.opening(at)
        return opens if opens > at else None

    def openings(self, first: int, last: int) -> Openings:
        """When it is open from one instant to another, ms UTC."""
        return self.window.openings(zone(self.zone), first, last)


def are_unknown(zones: pa.Array | pa.ChunkedArray) -> Flags:
    """Which names of zones are those of none; NULL is not among them."""
    coded = _coded(zones)
    none = pa.array([zone_named(each) is None for each in coded.dictionary.to_pylist()], pa.bool_())
    flags: Flags = none.take(coded.indices).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's
    return flags


def zone_named(name: bytes) -> ZoneInfo | None:
    """The zone that a recipient names; None: there is none of that name."""
    text = name.decode(errors="replace")
    return zone(text) if text in zone_names() else None


def _own(text: str, name: str) -> str:
    if name not in zone_names():
        raise BadValue("window_zone", text, ZONES)
    return name


def _coded(zones: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    whole = zones.combine_chunks() if isinstance(zones, pa.ChunkedArray) else zones
    return whole if pa.types.is_dictionary(whole.type) else whole.cast(pa.binary()).dictionary_encode()


def _by_zone(zones: pa.Array | pa.ChunkedArray) -> list[tuple[ZoneInfo | None, IntArray]]:
    """The numbers of the rows that name each zone; None: they name none of them, or nothing."""
    coded, found = _coded(zones), dict[ZoneInfo | None, int]({None: 0})
    named = (zone_named(each) for each in coded.dictionary.to_pylist())
    # Few zones are sorted faster as small numbers.
    numbers = np.array([*(found.setdefault(each, len(found)) for each in named), 0], np.uint16)
    own = numbers[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    order = np.argsort(own, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(own, minlength=len(found))))
    return [(each, order[ends[number] : ends[number + 1]]) for each, number in found.items()]

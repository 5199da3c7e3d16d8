"""How far sinks are, as files of a warehouse. What counts is in the broker; a file may be a little behind it.

Maintenance keeps the log of `deliveries` from the place of the slowest sink on. A sink that has begun, and whose place
the broker does not know any more, is told from one that begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pipeline.delta.logs.entries import entry, exists
from pipeline.delta.logs.logfiles import info_of
from pipeline.storage.files import Files

_FOLDER = "_sinks"


@dataclass(frozen=True)
class SinkPlace:
    """What is known of a sink.

    Attributes:
        topic: of the subscription.
        subscription: its name.
        version: the version of `deliveries` at which it goes on.
        rows: so many rows of that version are published; with a turn, so many deliveries of that turn.
        turn: up to which turn it has published, ms UTC (`pipeline.sinks.lots`); 0: it has published none by turns.
        sink: its address; None: an earlier version of delayline has noted it.
        after: the version of `deliveries` behind which it began, as the registry says it.
        published: how many messages this process and earlier ones have published, about.
        begun: whether the broker was told of a place.
        error: why it stands still; None: it does not.
    """

    topic: str
    subscription: str
    version: int
    rows: int
    published: int = 0
    begun: bool = False
    error: str | None = None
    turn: int = 0
    sink: str | None = None
    after: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Up to where it has published: a turn and deliveries of it, or else a version and rows of it."""
        return self.turn or self.version, self.rows


@dataclass(frozen=True)
class TakenUp:
    """What a sink has taken up. It is lasting before anything of it is published.

    Attributes:
        version: the version of `deliveries` from which on the sink needs the log.
        read: the version up to which it had read the log; this one was not there.
        skip: so many rows of `version` were published before it published by turns.
        place: up to where it had published by then, as `SinkPlace.place`.
        since: since when it has each lot, ms UTC, by the number of the lot.
    """

    version: int
    read: int
    skip: int
    place: tuple[int, int]
    since: Mapping[int, int] = field(default_factory=dict)

    def dumps(self) -> str:
        """As text."""
        return json.dumps({**asdict(self), "since": list(self.since.items())})

    @classmethod
    def loads(cls, text: str) -> TakenUp:
        """From the text."""
        told = json.loads(text)
        return cls(told["version"], told["read"], told["skip"], tuple(told["place"]), dict(told["since"]))


def late_s(files: Files, deliveries: str, version: int, now_ms: int) -> float | None:
    """Since when a version of the table `deliveries` has been there, s; 0: it is not; None: nobody knows any more."""
    told = entry(files, deliveries, version) if exists(files, deliveries, version) else []
    if not told:
        return None if told is None else 0.0
    since_ms: int = info_of(told).get("timestamp", now_ms)
    return max(0, now_ms - since_ms) / 1_000


class SinkPlaces:
    """The files of a warehouse.

    Attributes:
        folder: where they are.
    """

    def __init__(self, files: Files, root: str) -> None:
        """Read nothing yet."""
        self._files, self.folder = files, f"{root}/{_FOLDER}"

    def put(self, name: str, place: SinkPlace, *, lasting: bool = False) -> None:
        """Note a place; a lasting note is there after a power cut."""
        self._files.write(f"{self.folder}/{name}.json", json.dumps(asdict(place)), lasting=lasting)

    def get(self, name: str) -> SinkPlace | None:
        """The place of a sink; None: nothing is noted."""
        text = self._files.text_if_there(f"{self.folder}/{name}.json")
        return None if not text else SinkPlace(**json.loads(text))

    def take_up(self, name: str, taken: TakenUp) -> None:
        """Note what a sink has taken up; it is there after a power cut."""
        self._files.write(f"{self.folder}/{name}.lots", taken.dumps())

    def taken_up(self, name: str) -> TakenUp | None:
        """What a sink has taken up; None: nothing yet."""
        text = self._files.text_if_there(f"{self.folder}/{name}.lots")
        return None if text is None else TakenUp.loads(text)

    def names(self) -> list[str]:
        """The sinks that are noted."""
        names = self._files.names(self.folder)
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def all(self) -> dict[str, SinkPlace]:
        """The places of all sinks, by their names."""
        return {name: place for name in self.names() if (place := self.get(name)) is not None}

    def drop(self, name: str) -> None:
        """Forget a sink that has ended."""
        self._files.delete(f"{self.folder}/{name}.json")
        self._files.delete(f"{self.folder}/{name}.lots")
        self._files.delete(f"{self.folder}/{name}.lock")

    def needed(self) -> int | None:
        """The version of `deliveries` from which on a sink needs the log; None: there is no sink."""
        return min((place.version for place in self.all().values()), default=None)

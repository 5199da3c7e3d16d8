"""How far sinks are, as files of a warehouse. What counts is in the broker; a file may be a little behind it.

Maintenance keeps the log of `deliveries` from the place of the slowest sink on. A sink that has begun, and whose place
the broker does not know any more, is told from one that begins.

Each connection to a broker begins an *epoch* of its sink, which one process has: what a sink has taken up is noted
under the epoch, and the notes of the newest one count. A process that the broker has cut off may note something late.
In an object store no lock keeps it from that, and nobody reads it (decision 0115).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from pipeline.delta.claims import claim
from pipeline.delta.logs.entries import entry, exists, info_of
from pipeline.storage.files import Files
from pipeline.storage.notes import HighestNote, Notes

_FOLDER, _LOTS = "_sinks", ".lots"
_FIRST_TURN = 10**11
"""Turns are larger, versions are not."""


class LogPlace(NamedTuple):
    """A place in the log: so many rows of a version of `deliveries` are published."""

    version: int
    rows: int


class TurnPlace(NamedTuple):
    """A place among turns (`pipeline.sinks.lots`), ms UTC: so many deliveries of one are published."""

    turn: int
    deliveries: int


Place = LogPlace | TurnPlace
"""Up to where a sink has published. All places among turns are behind those in the log."""


def place_of(first: int, second: int) -> Place:
    """The place that two numbers mean."""
    return TurnPlace(first, second) if first >= _FIRST_TURN else LogPlace(first, second)


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
    def place(self) -> Place:
        """Up to where it has published."""
        return TurnPlace(self.turn, self.rows) if self.turn else LogPlace(self.version, self.rows)


@dataclass(frozen=True)
class TakenUp:
    """What a sink has taken up. It is lasting before anything of it is published.

    Attributes:
        version: the version of `deliveries` from which on the sink needs the log.
        read: the version up to which it had read the log; this one was not there.
        skip: so many rows of `version` were published before it published by turns.
        place: up to where it had published by then.
        since: since when it has each lot, ms UTC, by the number of the lot.
    """

    version: int
    read: int
    skip: int
    place: Place
    since: Mapping[int, int] = field(default_factory=dict)

    def dumps(self) -> str:
        """As text."""
        return json.dumps({**asdict(self), "since": list(self.since.items())})

    @classmethod
    def loads(cls, text: str) -> TakenUp:
        """From the text."""
        note = json.loads(text)
        return cls(note["version"], note["read"], note["skip"], place_of(*note["place"]), dict(note["since"]))


@dataclass(frozen=True)
class Epoch:
    """One of a sink, which one process has.

    Attributes:
        places: of all sinks.
        name: of the sink.
        number: grows from one to the next.
    """

    places: SinkPlaces
    name: str
    number: int

    @property
    def is_over(self) -> bool:
        """Whether another one has begun."""
        return self.places.epoch(self.name) != self.number

    def taken_up(self) -> TakenUp | None:
        """What the sink has taken up, by the newest note; None: nothing yet."""
        return self.places.taken_up(self.name)

    def take_up(self, taken: TakenUp) -> None:
        """Note it for whoever comes later."""
        self.places.take_up(self.name, self.number, taken)


def late_s(files: Files, deliveries: str, version: int, now_ms: int) -> float | None:
    """Since when a version of the table `deliveries` has been there, s; 0: it is not; None: nobody knows any more."""
    actions = entry(files, deliveries, version) if exists(files, deliveries, version) else []
    if not actions:
        return None if actions is None else 0.0
    since_ms: int = info_of(actions).get("timestamp", now_ms)
    return max(0, now_ms - since_ms) / 1_000


class SinkPlaces(Notes[SinkPlace]):
    """The places of the sinks of a warehouse, by their names, and what each has taken up."""

    def __init__(self, files: Files, root: str) -> None:
        super().__init__(files, f"{root}/{_FOLDER}", SinkPlace)

    def begin(self, name: str) -> Epoch:
        """Begin another epoch of a sink, whose broker has cut off earlier processes.

        Raises:
            OSError: another process has begun it.
        """
        folder = self._epochs(name)
        # A copy may lack the folder of an epoch that has notes, because it was empty.
        taken = self._taken(name)
        number = 1 + max([self.epoch(name), *map(int, taken.names())])
        # An epoch goes when a later one has begun: whoever looked before that would begin it again.
        if not claim(self._files, f"{folder}/{number}") or self.epoch(name) != number:
            raise OSError("another process publishes for the sink")
        taken.drop_lower()
        for begun in self._files.names(folder):
            if begun.isdecimal() and int(begun) < number:
                self._files.delete_folder(f"{folder}/{begun}")
        return Epoch(self, name, number)

    def epoch(self, name: str) -> int:
        """The newest epoch of a sink; 0: none has begun."""
        begun = self._files.names(self._epochs(name))
        return max((int(each) for each in begun if each.isdecimal()), default=0)

    def take_up(self, name: str, epoch: int, taken: TakenUp) -> None:
        """Note what a sink has taken up; it is there after a power cut."""
        self._taken(name).put(f"{epoch}", taken.dumps())

    def taken_up(self, name: str) -> TakenUp | None:
        """What a sink has taken up; None: nothing yet."""
        text = self._taken(name).get()
        return None if text is None else TakenUp.loads(text)

    def _epochs(self, name: str) -> str:
        return f"{self.folder}/{name}.epochs"

    def _taken(self, name: str) -> HighestNote:
        """What epochs of a sink have noted, by their numbers."""
        return HighestNote(self._files, self._epochs(name), _LOTS, f"{self.folder}/{name}{_LOTS}")

    def drop(self, name: str) -> None:
        """Forget a sink that has ended."""
        super().drop(name)
        self._files.delete(f"{self.folder}/{name}{_LOTS}")
        self._files.delete_folder(self._epochs(name))
        self._files.delete(f"{self.folder}/{name}.lock")

    def needed(self) -> int | None:
        """The version of `deliveries` from which on a sink needs the log; None: there is no sink."""
        return min((place.version for place in self.all().values()), default=None)

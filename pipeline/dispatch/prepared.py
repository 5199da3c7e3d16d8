"""Deliveries that are written and not yet visible: parts of batches, and the shelf where they are noted.

Dispatch writes the files of a batch ahead of time, cut into parts by due time, and notes them on the shelf. A version
of `deliveries` that names a part's files makes it visible (`pipeline.dispatch.publisher`).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.config.errors import PreparedFileGone
from pipeline.delta.checkpoints import Offset
from pipeline.delta.logs.filestats import span_ms
from pipeline.delta.writing.datafiles import DataFile, rows
from pipeline.storage.files import Files
from state.units import EPOCH, Ms

PREPARED = "prepared deliveries"
"""What the notes on the shelf are called among the tables of dispatch."""
_FOLDER = "_prepared"


@dataclass(frozen=True)
class Part:
    """Deliveries of one batch that become visible together: due between two buckets, both included (ms UTC).

    `number` ascends with every part, across batches and checkpoints.
    """

    number: int
    first_due: int
    last_due: int
    files: tuple[DataFile, ...]

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> "Part":
        """Files as a part, not numbered yet."""
        spans = [span_ms(file.stats, "due_time") for file in files]
        firsts, lasts = zip(*spans, strict=True)
        return cls(0, min(firsts), max(lasts), tuple(files))

    @property
    def count(self) -> int:
        """How many deliveries it has."""
        return rows(self.files)


@dataclass(frozen=True)
class HeldChange:
    """What a batch does to the table `held`, whose files are written.

    Attributes:
        version: the version of the table that it changes.
        gone: the sizes, in bytes, of files that go, by their paths relative to the table.
        added: files that come.
        turns: whose turn it is then, of incarnations that have turns (`pipeline.dispatch.turns`).
    """

    version: int
    gone: Mapping[str, int]
    added: tuple[DataFile, ...]
    turns: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of_note(cls, note: Mapping[str, Any] | None) -> "HeldChange | None":
        """From the text on the shelf; None: the batch changes nothing there."""
        if note is None:
            return None
        added, turns = (DataFile(**file) for file in note["added"]), map(tuple, note.get("turns", ()))
        return cls(note["version"], note["gone"], tuple(added), tuple(turns))


@dataclass(frozen=True)
class Prepared:
    """A batch whose files are written.

    Attributes:
        owner: the checkpoint that prepared it.
        batch: which of its batches it is.
        released_at: the instant of its release, ms UTC.
        source: where the batch ends in `redelivery` (version, index).
        parts: in the order in which they are due.
        begin: where what it holds begins in `redelivery`; None in notes of earlier versions, which did not say it.
        replaces: the numbers of notes that count no longer: their files were gone, and this one has it all anew.
        held: what the batch does to `held`; None: nothing.
    """

    owner: str
    batch: int
    released_at: Ms
    source: tuple[int, int]
    parts: tuple[Part, ...]
    begin: tuple[int, int] | None = None
    replaces: tuple[int, ...] = ()
    held: HeldChange | None = None

    @property
    def number(self) -> int:
        """The number of its first part, and of its note."""
        return self.parts[0].number

    @property
    def span(self) -> tuple[Offset | None, Offset]:
        """Where it begins, as far as that is known, and where it ends. What was prepared again has earlier batches."""
        return (None if self.replaces else self.begin), self.source

    def dumps(self) -> str:
        """The text on the shelf."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> "Prepared":
        """From the text on the shelf."""
        note = json.loads(text)
        parts = ({**each, "files": tuple(DataFile(**file) for file in each["files"])} for each in note["parts"])
        begin = None if note.get("begin") is None else tuple(note["begin"])
        places = {"source": tuple(note["source"]), "begin": begin, "replaces": tuple(note.get("replaces", ()))}
        held = HeldChange.of_note(note.get("held"))
        return cls(**{**note, **places, "held": held, "parts": tuple(Part(**each) for each in parts)})


@dataclass(frozen=True)
class Visible:
    """Which parts are visible, as the last version of `deliveries` says it.

    Attributes:
        top: the highest number of a visible part.
        below: numbers below it that are not visible yet.
        source: where the batch of `top` ends in `redelivery` (version, index).
        released_at: the instant of its release, ms UTC: no earlier batch has a later one.
    """

    top: int = 0
    below: frozenset[int] = frozenset()
    source: tuple[int, int] = (0, -1)
    released_at: Ms = EPOCH

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> "Visible":
        """From what a version carries."""
        # An earlier version of this project noted of each part that became visible when it was released.
        released_at = note.get("released_at", max((each[-1] for each in note.get("shown", ())), default=EPOCH))
        return cls(note["top"], frozenset(note["below"]), tuple(note["source"]), Ms(released_at))

    def __contains__(self, part: Part) -> bool:
        """Whether a part is visible."""
        return part.number <= self.top and part.number not in self.below

    def hidden(self, noted: Iterable[Prepared]) -> list[tuple[Prepared, Part]]:
        """The parts of batches that are not visible, with their batches."""
        return [(each, part) for each in noted for part in each.parts if part not in self]

    def lost(self, noted: Collection[int]) -> set[int]:
        """Numbers of parts that are neither visible nor noted; numbers of parts have no gaps."""
        return {*self.below, *range(self.top + 1, max(noted, default=0))} - set(noted)

    def after(self, shown: Iterable[int], hidden: Iterable[int], last: Prepared) -> "Visible":
        """Which parts are visible when some numbers, of which `last` has the highest, have become so."""
        top = max(self.top, *shown)
        below = frozenset(number for number in hidden if number < top)
        return Visible(top, below, max(last.source, self.source), max(last.released_at, self.released_at))

    def as_dict(self) -> dict[str, Any]:
        """For the metadata of a version."""
        return {**asdict(self), "below": sorted(self.below)}


def not_replaced(noted: Sequence[Prepared]) -> list[Prepared]:
    """Notes less those that another one replaces."""
    gone = {number for each in noted for number in each.replaces}
    return [each for each in noted if each.number not in gone]


class PreparedStore:
    """The notes of what is prepared, in a folder of the table that Delta's readers and VACUUM pass over."""

    def __init__(self, files: Files, deliveries: str) -> None:
        """Nothing is read yet; `deliveries` is the folder of the table."""
        self._files, self._table, self._folder = files, deliveries, f"{deliveries}/{_FOLDER}"

    def put(self, prepared: Prepared) -> None:
        """Note a batch, whole or not at all."""
        self._files.write(self._path(prepared), prepared.dumps())

    def drop(self, prepared: Prepared) -> None:
        """Forget a batch of which all is visible."""
        self._files.delete(self._path(prepared))

    def all(self) -> list[Prepared]:
        """All that is noted, in the order in which it was, less what another note replaces."""
        return not_replaced(self._noted())

    def sweep(self) -> None:
        """Forget what another note replaces."""
        kept = {each.number for each in self.all()}
        for each in self._noted():
            if each.number not in kept:
                self.drop(each)

    def lacks(self, part: Part) -> str | None:
        """A file of a part that is not there; None when all are."""
        return next((file.path for file in part.files if not self._files.has(f"{self._table}/{file.path}")), None)

    def check(self, prepared: Prepared, part: Part) -> None:
        """Look for the files of a part that is to become visible.

        Raises:
            PreparedFileGone: one is not there.
        """
        missing = self.lacks(part)
        if missing is not None:
            raise PreparedFileGone(prepared.batch, prepared.source, missing)

    def _noted(self) -> list[Prepared]:
        return sorted((Prepared.loads(text) for text in self.texts().values()), key=lambda each: each.number)

    def texts(self) -> dict[str, str]:
        """What is noted, by the names of the files. One that is dropped meanwhile is left out."""
        found = ((name, self._text(name)) for name in self.names())
        return {name: text for name, text in found if text is not None}

    def names(self) -> set[str]:
        """The names of the files."""
        return {name for name in self._files.names(self._folder) if name.endswith(".json")}

    def get(self, name: str) -> Prepared | None:
        """What a file notes; None: it is not there."""
        text = self._text(name)
        return None if text is None else Prepared.loads(text)

    def _text(self, name: str) -> str | None:
        return self._files.text_if_there(f"{self._folder}/{name}")

    def _path(self, prepared: Prepared) -> str:
        return f"{self._folder}/{prepared.number}.json"

"""Deliveries that are written and not yet visible: parts of batches, and the shelf where they are noted.

Dispatch writes the files of a batch ahead of time, cut into parts by due time, and notes them on the shelf. A version
of `deliveries` that names a part's files makes it visible (`pipeline.publisher`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from pipeline.appends import DataFile, rows
from pipeline.errors import PreparedFileGone
from pipeline.files import Files
from pipeline.footers import span_ms
from pipeline.tables import Warehouse
from schemas import DELIVERIES

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
class Prepared:
    """A batch whose files are written.

    Attributes:
        owner: the checkpoint that prepared it.
        batch: which of its batches it is.
        released_at: the instant of its release, ms UTC.
        source: where the batch ends in `redelivery` (version, index).
        parts: in the order in which they are due.
    """

    owner: str
    batch: int
    released_at: int
    source: tuple[int, int]
    parts: tuple[Part, ...]

    def dumps(self) -> str:
        """The text on the shelf."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> "Prepared":
        """From the text on the shelf."""
        told = json.loads(text)
        parts = ({**each, "files": tuple(DataFile(**file) for file in each["files"])} for each in told["parts"])
        return cls(**{**told, "source": tuple(told["source"]), "parts": tuple(Part(**each) for each in parts)})


@dataclass(frozen=True)
class Visible:
    """Which parts are visible, as the last version of `deliveries` says it.

    Attributes:
        top: the highest number of a visible part.
        below: numbers below it that are not visible yet.
        source: where the batch of `top` ends in `redelivery` (version, index).
    """

    top: int = 0
    below: frozenset[int] = frozenset()
    source: tuple[int, int] = (0, -1)

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> "Visible":
        """From what a version carries."""
        return cls(note["top"], frozenset(note["below"]), tuple(note["source"]))

    def __contains__(self, part: Part) -> bool:
        """Whether a part is visible."""
        return part.number <= self.top and part.number not in self.below

    def after(self, shown: Iterable[int], hidden: Iterable[int], source: tuple[int, int]) -> "Visible":
        """The same when some numbers become visible and others stay hidden."""
        top = max(self.top, *shown)
        return Visible(top, frozenset(number for number in hidden if number < top), max(source, self.source))

    def as_dict(self) -> dict[str, Any]:
        """For the metadata of a version."""
        return {"top": self.top, "below": sorted(self.below), "source": self.source}


class Shelf:
    """The notes of what is prepared, in a folder of the table that Delta's readers and VACUUM pass over."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._files, self._folder = Files(spark), f"{warehouse.path(DELIVERIES)}/{_FOLDER}"

    def put(self, prepared: Prepared) -> None:
        """Note a batch, whole or not at all."""
        self._files.write(self._path(prepared), prepared.dumps())

    def drop(self, prepared: Prepared) -> None:
        """Forget a batch of which all is visible."""
        self._files.delete(self._path(prepared))

    def all(self) -> list[Prepared]:
        """All that is noted, in the order in which it was."""
        names = (name for name in self._files.names(self._folder) if name.endswith(".json"))
        found = [each for name in names if (each := self._read(f"{self._folder}/{name}")) is not None]
        return sorted(found, key=lambda each: each.parts[0].number)

    def check(self, prepared: Prepared, part: Part) -> None:
        """Look for the files of a part that is to become visible.

        Raises:
            PreparedFileGone: one is not there.
        """
        table = self._folder.removesuffix(f"/{_FOLDER}")
        for file in part.files:
            if not self._files.exists(f"{table}/{file.path}"):
                raise PreparedFileGone(prepared.batch, prepared.source, file.path)

    def _read(self, path: str) -> Prepared | None:
        """A note; None when it was dropped since it was listed: maintenance looks while dispatch goes on."""
        try:
            return Prepared.loads(self._files.text(path))
        except Exception:
            if self._files.exists(path):
                raise
            return None

    def _path(self, prepared: Prepared) -> str:
        return f"{self._folder}/{prepared.parts[0].number}.json"

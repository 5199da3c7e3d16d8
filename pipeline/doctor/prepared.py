"""What is written for `deliveries` and not visible yet, as it is noted on the shelf. No Spark."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.fs
from deltalake.exceptions import TableNotFoundError

from pipeline.delta.deltars import files_in, text_of
from pipeline.delta.notes import Commit
from pipeline.doctor.logs import Place
from schemas import DELIVERIES

FOLDER = "_prepared"


@dataclass(frozen=True)
class PreparedFile:
    """A file of a part: its path in the folder of `deliveries`, its bytes and its rows."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class PreparedPart:
    """Deliveries that become visible together; `number` ascends with every part."""

    number: int
    files: tuple[PreparedFile, ...]


@dataclass(frozen=True)
class Prepared:
    """A batch of dispatch whose files are written.

    Attributes:
        name: the file in which it is noted.
        owner: the checkpoint that prepared it.
        batch: which of its batches it is.
        begin: where it begins in `redelivery`; older notes do not say.
        source: where it ends there.
        parts: in the order in which they are due.
        replaces: the numbers of notes that count no longer: this one has what they had.
    """

    name: str
    owner: str
    batch: int
    begin: Place | None
    source: Place
    parts: tuple[PreparedPart, ...]
    replaces: tuple[int, ...] = ()

    @classmethod
    def loads(cls, name: str, text: str) -> "Prepared":
        """From the text of its file.

        Raises:
            ValueError, KeyError, TypeError: it is no such text.
        """
        told = json.loads(text)
        begin, (version, index) = told.get("begin"), told["source"]
        parts = tuple(PreparedPart(each["number"], tuple(map(_file, each["files"]))) for each in told["parts"])
        place = None if begin is None else (begin[0], begin[1])
        replaces = tuple(told.get("replaces", ()))
        return cls(name, told["owner"], told["batch"], place, (version, index), parts, replaces)

    @property
    def number(self) -> int:
        """The number of its first part; 0 when it has none."""
        return self.parts[0].number if self.parts else 0

    def commit(self) -> Commit:
        """The same as a commit says it. What was prepared anew holds batches before it, too."""
        begin = {} if self.begin is None or self.replaces else {"begin": self.begin}
        return Commit(DELIVERIES.writer, self.owner, self.batch, {"source": self.source, **begin})


def read_shelf(deliveries: str) -> tuple[Prepared, ...]:
    """What is noted, by the number of its first part; a note that cannot be read has no parts.

    Args:
        deliveries: the folder of the table.
    """
    try:
        files = files_in(deliveries)
    except (TableNotFoundError, FileNotFoundError):
        return ()
    found = files.get_file_info(pyarrow.fs.FileSelector(FOLDER, allow_not_found=True))
    names = sorted(info.base_name for info in found if info.base_name.endswith(".json"))
    # Dropped since it was listed: it is visible as a whole.
    texts = ((name, text_of(files, f"{FOLDER}/{name}")) for name in names)
    noted = [_noted(name, text) for name, text in texts if text is not None]
    replaced = {number for each in noted for number in each.replaces}
    return tuple(sorted((each for each in noted if each.number not in replaced), key=lambda each: each.number))


def _noted(name: str, text: str) -> Prepared:
    try:
        return Prepared.loads(name, text)
    except (ValueError, KeyError, TypeError):
        return Prepared(name, "", -1, None, (0, -1), ())


def _file(told: Mapping[str, Any]) -> PreparedFile:
    return PreparedFile(str(told["path"]), int(told["size"]), int(told["rows"]))


def waiting(shelf: Iterable[Prepared], shown: Commit | None) -> Iterator[tuple[Prepared, PreparedPart]]:
    """The parts that are not visible by the last note of dispatch in `deliveries`."""
    top, below = (0, ()) if shown is None else (shown.note["top"], shown.note["below"])
    for each in shelf:
        yield from ((each, part) for part in each.parts if part.number > top or part.number in below)

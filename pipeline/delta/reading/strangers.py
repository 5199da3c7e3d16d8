"""Files that others add to the tables that everybody may append to: which of them are read, and why the others are not.

A stage stands between many producers, and one of them may leave anything: an entry whose path leads to the files of
somebody else, a file that is not there, or that is no Parquet. Such a file is left out and listed; what others have
sent beside it goes on. Only what is certain counts: a store that does not answer says nothing of a file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.errors import NoFileSystem
from pipeline.config.routes import NotInDriver
from pipeline.delta.logs.entries import is_inside
from pipeline.storage.files import Files
from pipeline.storage.parquet import size_of, typed, unfolds_to_more
from schemas import Table

FOREIGN, BROKEN, TOO_LARGE = "foreign_path", "broken_file", "file_too_large"
"""Reasons: the path leads out of the table's folder; the file is not there, or cannot be read; it unfolds to more than
anybody should hold."""
FOLDED = 100
"""A file may come to so many times its size, however much that is: equal texts are written once."""
_ABSOLUTE = "p"
"""How an entry says that a deletion vector is anywhere."""
_FOR_GOOD = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}
"""What a file system says of a file that the next attempt does not find otherwise."""
_FEW = 16
"""Rows that are decoded at once: a row may be far larger than its file."""


class FilesBroken(Exception):
    """A batch has files that cannot be read.

    Attributes:
        files: those.
    """

    def __init__(self, files: Sequence[LeftOut]) -> None:
        super().__init__(f"{len(files)} files cannot be read")
        self.files = tuple(files)


class LeftOut(NamedTuple):
    """A file that is not read.

    Attributes:
        version: that added it.
        path: as the log has it, decoded.
        reason: `FOREIGN`, `BROKEN` or `TOO_LARGE`.
        text: what is wrong with it.
    """

    version: int
    path: str
    reason: str
    text: str

    @property
    def place(self) -> tuple[int, str]:
        """Version and path."""
        return self.version, self.path


def places(files: Iterable[LeftOut]) -> frozenset[tuple[int, str]]:
    """Versions and paths of files."""
    return frozenset(each.place for each in files)


def left_out(files: Files, folder: str, added: Iterable[Mapping[str, Any]]) -> list[LeftOut]:
    """Files that are not to be opened, by their entries with decoded paths and versions. Opens none.

    Args:
        files: what reaches the table.
        folder: of the table.
        added: the entries.
    """
    here = files.local(folder)
    real = None if here is None else here.resolve()
    found = (_unopened(here, real, each) for each in added)
    return [each for each in found if each is not None]


def broken(files: Files, folder: str, table: Table, added: Iterable[Mapping[str, Any]]) -> list[LeftOut]:
    """Files that cannot be read as files of a table. Decodes all of each, a few rows at a time.

    Raises:
        OSError: the store did not answer, which says nothing of its files.
    """
    found = ((each, _problem(files, folder, table, each["path"])) for each in added)
    return [LeftOut(each["version"], each["path"], BROKEN, text) for each, text in found if text is not None]


def too_large(version: int, path: str, most: int) -> LeftOut:
    """A file whose texts come to more than so many bytes, and to more than `FOLDED` times its size."""
    text = f"its texts unfold to more than {most} bytes (settings.max_unfolded_bytes), and to {FOLDED} times its size"
    return LeftOut(version, path, TOO_LARGE, text)


def unfolding(files: Files, folder: str, table: Table, added: Iterable[Mapping[str, Any]], most: int) -> list[LeftOut]:
    """Files whose texts come to more than so many bytes, and to more than `FOLDED` times their size.

    None where nobody here reaches them, or when they are not what the table says, which others find out.
    """
    found, here = list[LeftOut](), files.readable(folder)
    for each in added if here is not None else ():
        path = f"{here}/{each['path']}"
        with suppress(NotInDriver, OSError, pa.ArrowException):
            if unfolds_to_more(table, path, max(most, FOLDED * size_of(path))):
                found.append(too_large(each["version"], each["path"], most))
    return found


def _unopened(here: Path | None, real: Path | None, added: Mapping[str, Any]) -> LeftOut | None:
    path = added["path"]
    vector = added.get("deletionVector") or {}
    if not is_inside(path) or vector.get("storageType") == _ABSOLUTE:
        return LeftOut(added["version"], path, FOREIGN, "it is not named by a path within the folder of the table")
    if here is None or real is None:
        return None
    # Who opens a pipe waits for ever, and a link may lead anywhere.
    where = here / path
    if not os.path.realpath(where).startswith(f"{real}{os.sep}"):
        return LeftOut(added["version"], path, FOREIGN, "a link leads out of the folder of the table")
    return None if where.is_file() else LeftOut(added["version"], path, BROKEN, "there is no such file")


def _problem(files: Files, folder: str, table: Table, path: str) -> str | None:
    """Why a file cannot be read; None: it can, or nobody here can tell."""
    try:
        with _opened(files, f"{folder}/{path}") as source:
            return _undecodable(source, table)
    except NoFileSystem:
        return None
    except OSError as error:
        if error.errno not in _FOR_GOOD:
            raise
        return str(error.strerror)


@contextmanager
def _opened(files: Files, path: str) -> Iterator[pa.NativeFile]:
    """A file whose bytes are at hand: what fails from here on is their fault."""
    here = files.local(path)
    if here is not None:
        with here.open("rb") as found:
            found.read(1)
        with pa.OSFile(str(here)) as source:
            yield source
        return
    with files.open(path) as source:
        data = source.read()
    yield pa.BufferReader(data)


def _undecodable(source: pa.NativeFile, table: Table) -> str | None:
    try:
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us", buffer_size=1 << 20) as file:
            names = [name for name in table.columns.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_FEW, columns=names):
                typed(table, batch, table.columns.names)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return f"its rows cannot be read ({type(error).__name__})"
    return None

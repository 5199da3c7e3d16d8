"""The door to files, wherever they lie: this machine, an object store, or a file system that only Hadoop reaches.

The scheme of a path says which. Stages, maintenance, client and clock use it alike. `Files()` needs no Spark, and
reaches this machine and object stores; `pipeline.storage.hadoop.session_files` adds what a Spark session reaches.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pyarrow import NativeFile
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem, copy_files

from pipeline.config.errors import NoFileSystem
from pipeline.config.paths import local_path
from pipeline.storage.arrowfs import StoreFiles, store_of
from pipeline.storage.local import LocalFiles, sync

_LOCAL, _WORKING = LocalFiles(), Path()
_SYNCING = [True]
_PASSING: set[str] = set()
"""Folders of which nothing need outlast a power cut."""


class Backend(Protocol):
    """One kind of file system. Times are ms UTC by its own clock, sizes bytes."""

    def exists(self, path: str) -> bool:
        """Whether a file or a folder is there."""
        ...

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is missing."""
        ...

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size and time of change of each file in a folder."""
        ...

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        ...

    def read(self, path: str, start: int) -> bytes:
        """A file from a byte on; FileNotFoundError without it."""
        ...

    def write(self, path: str, data: bytes, *, lasting: bool) -> None:
        """Write a file whole or not at all, in the place of one that may be there."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file if it is there."""
        ...

    def delete_folder(self, path: str) -> None:
        """Delete a folder if it is there."""
        ...

    def move(self, old: str, new: str) -> None:
        """Rename a file or a folder that is there."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was written."""
        ...


class Files:
    """Small reads and writes on the file system of a path. Nothing is cached.

    Each call raises `NoFileSystem` for a path that nobody here reaches.
    """

    def __init__(self, others: Backend | None = None, here: Path | None = _WORKING) -> None:
        """Reach this machine and object stores.

        Args:
            others: for paths that are neither.
            here: the folder in which a path without a scheme begins; None when that is not on this machine.
        """
        self._others, self._here = others, here

    def local(self, path: str) -> Path | None:
        """The path as this machine's own programs name it; None when it lies elsewhere."""
        return local_path(path, self._here)

    def readable(self, path: str) -> str | None:
        """The path as `pipeline.storage.parquet` reads it; None where only Spark does."""
        here = self.local(path)
        return str(here) if here is not None else path if store_of(path) is not None else None

    def reaches(self, path: str) -> bool:
        """Whether anything can be asked about a path."""
        return self._others is not None or self.readable(path) is not None

    def exists(self, path: str) -> bool:
        """Whether a file or a folder is there."""
        backend, where = self._at(path)
        return backend.exists(where)

    def has(self, path: str) -> bool:
        """Whether a file is there. A store needs one request less for that than for `exists`."""
        backend, where = self._at(path)
        return backend.has(where)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none when the folder is missing."""
        backend, where = self._at(folder)
        return sorted(backend.names(where))

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of change (ms UTC) of each file in a folder, by name; folders are left out."""
        backend, where = self._at(folder)
        return backend.sizes(where)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, sorted."""
        backend, where = self._at(folder)
        return sorted(backend.folders(where))

    def tail(self, path: str, size: int, count: int) -> bytes:
        """The last `count` bytes of a file of a known size, or all of it."""
        backend, where = self._at(path)
        return backend.read(where, max(0, size - count))

    def folder(self, path: str) -> FileSystem:
        """A folder as pyarrow's file system; not where only Hadoop reaches."""
        here = self.local(path)
        found = store_of(path) if here is None else (LocalFileSystem(), str(here))
        if found is None:
            raise NoFileSystem(path)
        return SubTreeFileSystem(found[1], found[0])

    def open(self, path: str) -> NativeFile:
        """A file, to be read anywhere in it; not where only Hadoop reaches.

        Raises:
            FileNotFoundError: it is not there.
        """
        folder, _, name = path.rpartition("/")
        return self.folder(folder).open_input_file(name)

    def text(self, path: str) -> str:
        """The whole of a small UTF-8 file.

        Raises:
            FileNotFoundError: it is not there.
        """
        backend, where = self._at(path)
        return backend.read(where, 0).decode(errors="replace")

    def text_if_there(self, path: str) -> str | None:
        """The whole of a small UTF-8 file; None when it is not there."""
        try:
            return self.text(path)
        except FileNotFoundError:
            return None

    def write(self, path: str, content: str | bytes, *, lasting: bool = True) -> None:
        """Write a small file, a text as UTF-8, in the place of one that may be there; its folder is made.

        Readers see what was there before, or all of it. It is there after a power cut, if it is to be lasting.
        """
        backend, where = self._at(path)
        data = content.encode() if isinstance(content, str) else content
        backend.write(where, data, lasting=lasting and _lasts(path))

    def sync(self, *paths: str) -> None:
        """Wait until files, or the names in folders, are on the disk: until then a power cut may leave them empty.

        Nothing happens where files lie elsewhere, and where that was turned off.
        """
        for here in filter(None, map(self.local, filter(_lasts, paths))):
            sync(here)

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens when it is not there."""
        backend, where = self._at(path)
        backend.delete(where)

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it; nothing happens when it is not there."""
        backend, where = self._at(path)
        backend.delete_folder(where)

    def move(self, old: str, new: str) -> None:
        """Rename a file or folder within one file system; what is not there is not moved.

        Raises:
            OSError: the file system did not do it.
        """
        (backend, source), (_, target) = self._at(old), self._at(new)
        if backend.exists(source):
            backend.move(source, target)

    def link(self, old: str, new: str) -> bool:
        """Let a file have one more name, which nobody may write through; copy it where there are no such names.

        The folder of the new name is made.

        Returns:
            Whether it is one more name: then it takes no room.

        Raises:
            FileNotFoundError: there is no such file.
            FileExistsError: something has that name.
        """
        here, there = self.local(old), self.local(new)
        if here is not None and there is not None:
            return _LOCAL.link(str(here), str(there))
        self.copy(old, new)
        return False

    def copy(self, old: str, new: str) -> None:
        """Copy a file, from one file system to another one, too; not where only Hadoop reaches.

        Raises:
            FileNotFoundError: there is no such file.
        """
        (source, name), (target, other) = (self._split(each) for each in (old, new))
        target.create_dir(".", recursive=True)
        copy_files(name, other, source_filesystem=source, destination_filesystem=target)

    def _split(self, path: str) -> tuple[FileSystem, str]:
        folder, _, name = path.rpartition("/")
        return self.folder(folder), name

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms UTC by the clock of the storage; it has to be there."""
        backend, where = self._at(path)
        return backend.modified_ms(where)

    def _at(self, path: str) -> tuple[Backend, str]:
        """Whom to ask, and how the path is spelled there."""
        if path.startswith("/") and ":" not in path and self._here is not None:
            return _LOCAL, path  # most are so, and a `Path` of each would take longer than what is asked for
        here = self.local(path)
        if here is not None:
            return _LOCAL, str(here)
        store = store_of(path)
        if store is not None:
            return StoreFiles(store[0]), store[1]
        if self._others is None:
            raise NoFileSystem(path)
        return self._others, path


@contextmanager
def passing(folder: str) -> Iterator[None]:
    """Let nothing below a folder wait for the disk: it is deleted soon."""
    _PASSING.add(f"{folder}/")
    try:
        yield
    finally:
        _PASSING.discard(f"{folder}/")


def _lasts(path: str) -> bool:
    return _SYNCING[0] and not path.startswith(tuple(_PASSING))


def sync_files(*, on: bool) -> None:
    """Turn `Files.sync`, and lasting writes, on or off in this process; they are on to begin with."""
    _SYNCING[0] = on

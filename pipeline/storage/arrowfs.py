"""Files in object stores, by pyarrow: S3 and what speaks like it, Google Cloud Storage, Azure.

Keys come from the environment, by the names that users of each store know: AWS_*, GOOGLE_APPLICATION_CREDENTIALS,
AZURE_*. A put is whole or nothing by itself.
"""

from functools import cache

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from pipeline.config import s3
from pipeline.config.paths import is_in_store, is_s3, one_spelling

_ATTEMPTS = 3


def store_of(path: str) -> tuple[FileSystem, str] | None:
    """The object store of a path, and the path in it as pyarrow names it; None for a path of another kind."""
    if not is_in_store(path):
        return None
    if is_s3(path):
        return s3.files(), one_spelling(path).removeprefix("s3a://")
    scheme, _, rest = path.partition("://")
    host, _, key = rest.partition("/")
    system, root = _opened(scheme, host)
    return system, f"{root.rstrip('/')}/{key}".rstrip("/")


def in_store(path: str) -> tuple[FileSystem, str]:
    """The file system of a path that is known to be in a store, and the path in it."""
    found = store_of(path)
    assert found is not None, path  # noqa: S101 - whoever calls has asked before
    return found


@cache
def _opened(scheme: str, host: str) -> tuple[FileSystem, str]:
    system, root = FileSystem.from_uri(f"{scheme}://{host}/")
    return system, str(root)


class StoreFiles:
    """A `Backend` of `pipeline.storage.files` for one object store; paths are bucket and key."""

    def __init__(self, system: FileSystem) -> None:
        self._system = system

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return bool(self._info(path).type != FileType.NotFound)

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        try:
            self._system.open_input_file(path).close()
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is missing."""
        return [each.base_name for each in self._in(folder)]

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of change (ms UTC) of each file in a folder, by name."""
        files = (each for each in self._in(folder) if each.is_file)
        return {each.base_name: (int(each.size), each.mtime_ns // 1_000_000) for each in files}

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        return [each.base_name for each in self._in(folder) if not each.is_file]

    def read(self, path: str, start: int) -> bytes:
        """A file from a byte on.

        pyarrow asks for the size first, and then for so many bytes: a file that was replaced by a shorter one in
        between is an error there, and is read again here.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with self._system.open_input_file(path) as file:
                    return bytes(file.read_at(max(0, file.size() - start), start))
            except FileNotFoundError:
                raise
            except OSError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def write(self, path: str, data: bytes, *, lasting: bool) -> None:  # noqa: ARG002 - a put lasts
        """Put a file in the place of one that may be there."""
        with self._system.open_output_stream(path) as stream:
            stream.write(data)

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens when it is not there."""
        try:
            self._system.delete_file(path)
        except FileNotFoundError:
            return

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it; nothing happens when it is not there."""
        try:
            self._system.delete_dir(path)
        except FileNotFoundError:
            return

    def move(self, old: str, new: str) -> None:
        """Copy a file, or each file of a folder, and delete it where it was."""
        if self._info(old).is_file:
            self._system.move(old, new)
            return
        for each in self._in(old, deep=True):
            if each.is_file:
                self._system.move(each.path, f"{new}{each.path.removeprefix(old)}")
        self.delete_folder(old)

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms UTC by the clock of the store."""
        return int(self._info(path).mtime_ns // 1_000_000)

    def _info(self, path: str) -> FileInfo:
        return self._system.get_file_info(path)

    def _in(self, folder: str, *, deep: bool = False) -> list[FileInfo]:
        return list(self._system.get_file_info(FileSelector(folder, allow_not_found=True, recursive=deep)))

"""Files of this machine's own file system.

Hadoop may keep the sum of a file beside it (`.name.crc`). Such files are not listed, and go with their file.
"""
# ruff: noqa: PTH110, PTH113, PTH123, PTH208 - where it is asked most a `Path` would take longer than the answer

import errno
import os
import shutil
from pathlib import Path
from uuid import uuid4

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES}
"""Why there is no link: another disk, a file system without links, a file that has as many as it may."""


class LocalFiles:
    """A `Backend` of `pipeline.storage.files` for paths of this machine."""

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return os.path.exists(path)

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        return os.path.isfile(path)

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is missing."""
        return [name for name in os.listdir(folder) if not _is_sum(name)] if os.path.exists(folder) else []

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of change (ms UTC) of each file in a folder, by name."""
        stats = {each.name: each.stat() for each in Path(folder).iterdir() if each.is_file() and not _is_sum(each.name)}
        return {name: (stat.st_size, stat.st_mtime_ns // 1_000_000) for name, stat in stats.items()}

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        return [each.name for each in Path(folder).iterdir() if each.is_dir()]

    def read(self, path: str, start: int) -> bytes:
        """A file from a byte on."""
        with open(path, "rb") as file:
            file.seek(start)
            return file.read()

    def write(self, path: str, data: bytes, *, lasting: bool) -> None:
        """Write a file whole or not at all, in the place of one that may be there; its folder is made."""
        here = Path(path)
        here.parent.mkdir(parents=True, exist_ok=True)
        # Of two that write one file at a time each has a name of its own; the later one to rename has it.
        fresh = here.with_name(f"{here.name}.{uuid4().hex[:8]}.new")
        try:
            fresh.write_bytes(data)
            if lasting:
                sync(fresh)
            self.move(str(fresh), path)
        except BaseException as error:
            fresh.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:
                # Of a write into an open file the system does not say where that was.
                error.filename = str(here.parent)
            raise
        if lasting:
            sync(here.parent)

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens when it is not there."""
        Path(path).unlink(missing_ok=True)
        _sum_of(Path(path)).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it; nothing happens when it is not there."""
        if Path(path).exists():
            shutil.rmtree(path)

    def move(self, old: str, new: str) -> None:
        """Rename a file or a folder; a file in its way is replaced."""
        # The sums that Hadoop keeps beside a file would be those of another one.
        for each in (old, new):
            _sum_of(Path(each)).unlink(missing_ok=True)
        Path(old).rename(new)

    def link(self, old: str, new: str) -> bool:
        """Give a file one more name, or copy it where that cannot be; whether it is one more name."""
        os.makedirs(os.path.dirname(new), exist_ok=True)  # noqa: PTH103, PTH120 - as above
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            shutil.copyfile(old, new)
            return False
        return True

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms UTC."""
        return Path(path).stat().st_mtime_ns // 1_000_000


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk: until then a power cut may leave them empty."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sum_of(file: Path) -> Path:
    """Where Hadoop keeps the sum of a file."""
    return file.with_name(f".{file.name}.crc")


def _is_sum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")

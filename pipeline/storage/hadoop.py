"""Files on a file system that only Hadoop reaches, such as HDFS, by a few calls into the JVM each time.

It reaches into the JVM, as few modules do (`tests/unit/house/test_jvm.py`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pipeline.config.jvm import gateway_of, hadoop_settings, java_class
from pipeline.config.lazyspark import raised
from pipeline.storage.files import Files

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_HADOOP, _IO = "org.apache.hadoop.fs", "org.apache.commons.io.IOUtils"
_IF_NONE, _UNASKED = "fs.option.create.conditional.overwrite", "fs.s3a.create.performance"
"""Put only where no object is; and do not ask before the put what is there, or whether the folder is one."""
_IS_THERE, _CONFLICT = "org.apache.hadoop.fs.s3a.RemoteFileChangedException", "Status Code: 409"
"""What Hadoop's connector makes of 412: somebody else's file is there, and stays."""
_FILES = Files()
_ATTEMPTS, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10, 0.02, 1.0
"""Of a put that meets another, and between them: five seconds in all, twice as long each time."""


def session_files(spark: SparkSession | None) -> Files:
    """All file systems that a session reaches. A process has one JVM at a time, which is asked about them once.

    Without a session: this machine, and stores by their addresses.
    """
    return _FILES if spark is None else _files_of(spark.sparkContext)


@lru_cache(maxsize=1)
def _files_of(context: SparkContext) -> Files:
    hadoop = HadoopFiles(context)
    return Files(hadoop, here=hadoop.here())


class HadoopFiles:
    """A `Backend` of `pipeline.storage.files` for paths as Hadoop spells them."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._gateway, self._conf = gateway_of(context), hadoop_settings(context)

    def here(self) -> Path | None:
        """The folder in which a path without a scheme begins; None when that is not on this machine."""
        default = java_class(self._context, f"{_HADOOP}.FileSystem").get(self._conf)
        local = str(default.getUri().getScheme()) == "file"
        return Path(default.getWorkingDirectory().toUri().getPath()) if local else None

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return bool(self._system(path).exists(self._path(path)))

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        return self.exists(path)

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is missing."""
        return [each.getPath().getName() for each in self._in(folder)] if self.exists(folder) else []

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of change (ms UTC) of each file in a folder, by name."""
        files = (each for each in self._in(folder) if each.isFile())
        return {each.getPath().getName(): (int(each.getLen()), int(each.getModificationTime())) for each in files}

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        return [each.getPath().getName() for each in self._in(folder) if each.isDirectory()]

    def read(self, path: str, start: int) -> bytes:
        """A file from a byte on.

        Raises:
            FileNotFoundError: it is not there.
        """
        if not self.exists(path):
            raise FileNotFoundError(path)
        stream = self._system(path).open(self._path(path))
        try:
            stream.seek(start)
            return bytes(java_class(self._context, _IO).toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes, *, lasting: bool) -> None:  # noqa: ARG002 - HDFS keeps what is closed
        """Write a file beside its place and rename it: readers see what was there before, or all of it."""
        # Of two that write one file at a time each has a name of its own.
        fresh = f"{path}.{uuid4().hex[:8]}.new"
        stream = self._system(fresh).create(self._path(fresh), True)  # noqa: FBT003 - Hadoop has no name for "overwrite"
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        old, new = (self._system(path).makeQualified(self._path(each)) for each in (fresh, path))
        # `FileSystem.rename` replaces nothing on HDFS; this does, at once.
        rename, files = (java_class(self._context, f"{_HADOOP}.{name}") for name in ("Options$Rename", "FileContext"))
        how = self._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        files.getFileContext(new.toUri(), self._conf).rename(old, new, how)

    def create(self, path: str, content: str, pause: Callable[[float], None] = time.sleep) -> bool:
        """Put a small file in a store that speaks S3, unless one is there: False. The store itself decides.

        Hadoop's `create` asks whether the file is there and then puts it, whatever has come in between. While another
        put is under way it is tried again, with growing pauses (`pause` takes seconds).

        Raises:
            Py4JJavaError: the store, or Hadoop's connector, knows no such request; or others put it all the time.
        """
        system, where = self._system(path), self._path(path)
        attempt = 0
        while True:
            attempt += 1
            stream = system.createFile(where).must(_IF_NONE, True).opt(_UNASKED, True).build()  # noqa: FBT003 - values of Hadoop's
            try:
                stream.write(bytearray(content.encode()))
                stream.close()
            except raised("Py4JJavaError") as error:
                if error.java_exception.getClass().getName() == _IS_THERE:
                    return False
                # Two at once: neither is there yet. Amazon asks for another attempt.
                if _CONFLICT not in str(error) or attempt == _ATTEMPTS:
                    raise
                pause(min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, not a secret
            else:
                return True

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens when it is not there."""
        self._system(path).delete(self._path(path), False)  # noqa: FBT003 - not a folder

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it; nothing happens when it is not there."""
        self._system(path).delete(self._path(path), True)  # noqa: FBT003 - with what is in it

    def move(self, old: str, new: str) -> None:
        """Rename a file or a folder.

        Raises:
            OSError: the file system did not do it.
        """
        if not self._system(old).rename(self._path(old), self._path(new)):
            message = f"{old} was not renamed to {new}"
            raise OSError(message)

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms UTC by the clock of the file system."""
        return int(self._system(path).getFileStatus(self._path(path)).getModificationTime())

    def _in(self, folder: str) -> list[Any]:
        return list(self._system(folder).listStatus(self._path(folder)))

    def _path(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        return java_class(self._context, f"{_HADOOP}.Path")(path)

    def _system(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        return self._path(path).getFileSystem(self._conf)

"""Files beside the tables: checkpoints and Delta logs, on whatever file system the warehouse lies.

Hadoop's file systems see what Spark sees, at the price of a few calls into the JVM each time; on this machine's own
file system Python does the same without. Beside `pipeline.config.jvm`, `pipeline.delta.tablelog` and
`pipeline.service.watch.listener` the only module that reaches into the JVM.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.config.jvm import java_class
from pipeline.config.paths import is_s3, local_path

_HADOOP, _IO = "org.apache.hadoop.fs", "org.apache.commons.io.IOUtils"
_IF_NONE = "fs.option.create.conditional.overwrite"
_IS_THERE, _CONFLICT = "org.apache.hadoop.fs.s3a.RemoteFileChangedException", "Status Code: 409"
"""What Hadoop's connector makes of 412: somebody else's file is there, and stays."""
SYNC = "delayline.sync"
"""Of Hadoop's configuration: whether `Files.sync` does something; it does, when that is not set."""


class Files:
    """Small reads and writes on the file system of a path. Nothing is cached."""

    def __init__(self, spark: SparkSession) -> None:
        """Use the Hadoop configuration of a session."""
        context: Any = spark.sparkContext
        self._spark = spark
        self._gateway, self._conf = context._gateway, context._jsc.hadoopConfiguration()  # noqa: SLF001 - as in `jvm`
        # Where a path without a scheme lies, when that is here.
        default = java_class(spark, f"{_HADOOP}.FileSystem").get(self._conf)
        here = str(default.getUri().getScheme()) == "file"
        self._here = Path(default.getWorkingDirectory().toUri().getPath()) if here else None
        self._syncs = bool(self._conf.getBoolean(SYNC, True))  # noqa: FBT003 - Hadoop has no name for "otherwise"

    def local(self, path: str) -> Path | None:
        """The path as this machine's own programs name it; None when it lies on another file system."""
        return local_path(path, self._here)

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        here = self.local(path)
        return bool(self._system(path).exists(self._path(path))) if here is None else here.exists()

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none when the folder is missing."""
        if not self.exists(folder):
            return []
        here = self.local(folder)
        if here is not None:
            return sorted(each.name for each in here.iterdir() if not _is_sum(each))
        return sorted(status.getPath().getName() for status in self._system(folder).listStatus(self._path(folder)))

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of change (ms UTC) of each file in a folder, by name; folders are left out."""
        here = self.local(folder)
        if here is not None:
            told = {each.name: each.stat() for each in here.iterdir() if each.is_file() and not _is_sum(each)}
            return {name: (stat.st_size, stat.st_mtime_ns // 1_000_000) for name, stat in told.items()}
        found = self._system(folder).listStatus(self._path(folder))
        files = (each for each in found if each.isFile())
        return {each.getPath().getName(): (int(each.getLen()), int(each.getModificationTime())) for each in files}

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, sorted."""
        here = self.local(folder)
        if here is not None:
            return sorted(each.name for each in here.iterdir() if each.is_dir())
        found = self._system(folder).listStatus(self._path(folder))
        return sorted(each.getPath().getName() for each in found if each.isDirectory())

    def tail(self, path: str, size: int, count: int) -> bytes:
        """The last `count` bytes of a file of a known size, or all of it."""
        here = self.local(path)
        if here is not None:
            with here.open("rb") as file:
                file.seek(max(0, size - count))
                return file.read()
        stream = self._system(path).open(self._path(path))
        try:
            stream.seek(max(0, size - count))
            return bytes(java_class(self._spark, _IO).toByteArray(stream))
        finally:
            stream.close()

    def text(self, path: str) -> str:
        """The whole of a small UTF-8 file."""
        here = self.local(path)
        if here is not None:
            return here.read_bytes().decode(errors="replace")
        stream = self._system(path).open(self._path(path))
        try:
            return str(java_class(self._spark, _IO).toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, content: str | bytes, *, lasting: bool = True) -> None:
        """Write a small file, a text as UTF-8, whole or not at all; its folder is made.

        It is there after a power cut, if it is to be lasting.
        """
        if is_s3(path):
            # A put is whole or nothing by itself, and a rename would be a copy.
            self._put(path, content)
            return
        fresh = self._written_beside(path, content)
        if lasting:
            self.sync(fresh)
        self.move(fresh, path)
        if lasting:
            self.sync(path.rpartition("/")[0])

    def sync(self, *paths: str) -> None:
        """Wait until files, or the names in folders, are on the disk: until then a power cut may leave them empty.

        Nothing happens where files lie elsewhere, and where that was turned off.
        """
        for here in filter(None, map(self.local, paths)) if self._syncs else ():
            opened = os.open(here, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

    def create(self, path: str, content: str) -> bool:
        """Write a small file in a store that speaks S3, unless one is there: False. The store itself decides.

        Hadoop's `create` asks whether the file is there and then puts it, whatever has come in between.

        Raises:
            Py4JJavaError: the store, or Hadoop's connector, knows no such request.
        """
        system, where = self._system(path), self._path(path)
        while True:
            stream = system.createFile(where).must(_IF_NONE, True).build()  # noqa: FBT003 - a value of Hadoop's
            try:
                stream.write(bytearray(content.encode()))
                stream.close()
            except Py4JJavaError as error:
                if error.java_exception.getClass().getName() == _IS_THERE:
                    return False
                # Two at once: neither is there yet. Amazon asks for another attempt.
                if _CONFLICT not in str(error):
                    raise
            else:
                return True

    def replace(self, path: str, content: str, *, lasting: bool = True) -> None:
        """Write a small file in the place of one that may be there; readers see the old one or the new one.

        It is there after a power cut, if it is to be lasting.
        """
        if self.local(path) is not None or is_s3(path):
            self.write(path, content, lasting=lasting)
            return
        fresh = self._written_beside(path, content)
        old, new = (self._system(path).makeQualified(self._path(each)) for each in (fresh, path))
        # `FileSystem.rename` replaces nothing on HDFS; this does, at once.
        rename, context = (java_class(self._spark, f"{_HADOOP}.{name}") for name in ("Options$Rename", "FileContext"))
        how = self._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        context.getFileContext(new.toUri(), self._conf).rename(old, new, how)

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens when it is not there."""
        here = self.local(path)
        if here is None:
            self._system(path).delete(self._path(path), False)  # noqa: FBT003 - not a folder
            return
        here.unlink(missing_ok=True)
        _sum_of(here).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it; nothing happens when it is not there."""
        here = self.local(path)
        if here is None:
            self._system(path).delete(self._path(path), True)  # noqa: FBT003 - with what is in it
        elif here.exists():
            shutil.rmtree(here)

    def move(self, old: str, new: str) -> None:
        """Rename a file or folder within one file system; what is not there is not moved.

        Raises:
            OSError: the file system did not do it.
        """
        if not self.exists(old):
            return
        source, target = self.local(old), self.local(new)
        if source is not None and target is not None:
            # The sums that Hadoop keeps beside a file would be those of another one.
            for each in (source, target):
                _sum_of(each).unlink(missing_ok=True)
            source.rename(target)
        elif not self._system(old).rename(self._path(old), self._path(new)):
            message = f"{old} was not renamed to {new}"
            raise OSError(message)

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms UTC by the clock of the storage; it has to be there."""
        here = self.local(path)
        if here is not None:
            return here.stat().st_mtime_ns // 1_000_000
        return int(self._system(path).getFileStatus(self._path(path)).getModificationTime())

    def _written_beside(self, path: str, content: str | bytes) -> str:
        fresh = f"{path}.new"
        data = content.encode() if isinstance(content, str) else content
        here = self.local(fresh)
        if here is not None:
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(data)
            return fresh
        self._put(fresh, data)
        return fresh

    def _put(self, path: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        stream = self._system(path).create(self._path(path), True)  # noqa: FBT003 - Hadoop has no name for "overwrite"
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def _path(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        return java_class(self._spark, f"{_HADOOP}.Path")(path)

    def _system(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        return self._path(path).getFileSystem(self._conf)


def sync_files(spark: SparkSession, *, on: bool) -> None:
    """Turn `Files.sync` on or off for those that are made from now on in a session."""
    context: Any = spark.sparkContext
    context._jsc.hadoopConfiguration().setBoolean(SYNC, on)  # noqa: SLF001 - as in `jvm`


def _sum_of(file: Path) -> Path:
    """Where Hadoop keeps the sum of a file."""
    return file.with_name(f".{file.name}.crc")


def _is_sum(file: Path) -> bool:
    return file.name.startswith(".") and file.name.endswith(".crc")

"""Files beside the tables: checkpoints and Delta logs, on whatever file system the warehouse lies.

Beside `pipeline.deltajvm` and `pipeline.watch_listener` the only module that reaches into the JVM: Hadoop's file
system is the only one that sees what Spark sees.
"""

from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Small reads on the file system of a path. Each call is one round trip or a few; nothing is cached."""

    def __init__(self, spark: SparkSession) -> None:
        """Use the Hadoop configuration of a session."""
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public door to Hadoop's file systems
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001

    def local(self, path: str) -> str | None:
        """The path as this machine's own programs name it; None when it lies on another file system."""
        uri = self._system(path).makeQualified(self._path(path)).toUri()
        return str(uri.getPath()) if uri.getScheme() == "file" else None

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none when the folder is missing."""
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._system(folder).listStatus(self._path(folder)))

    def sizes(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of change (ms UTC) of each file in a folder, by name; folders are left out."""
        found = self._system(folder).listStatus(self._path(folder))
        files = (each for each in found if each.isFile())
        return {each.getPath().getName(): (int(each.getLen()), int(each.getModificationTime())) for each in files}

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, sorted."""
        found = self._system(folder).listStatus(self._path(folder))
        return sorted(each.getPath().getName() for each in found if each.isDirectory())

    def tail(self, path: str, size: int, count: int) -> bytes:
        """The last `count` bytes of a file of a known size, or all of it."""
        stream = self._system(path).open(self._path(path))
        try:
            stream.seek(max(0, size - count))
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def text(self, path: str) -> str:
        """The whole of a small UTF-8 file."""
        stream = self._system(path).open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, content: str | bytes) -> None:
        """Write a small file, a text as UTF-8, whole or not at all; its folder is made."""
        self.move(self._written_beside(path, content), path)

    def replace(self, path: str, content: str) -> None:
        """Write a small file in the place of one that may be there; readers see the old one or the new one."""
        fresh = self._written_beside(path, content)
        old, new = (self._system(path).makeQualified(self._path(each)) for each in (fresh, path))
        # `FileSystem.rename` replaces nothing on HDFS; this does, at once.
        hadoop = self._jvm.org.apache.hadoop.fs
        how = self._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
        how[0] = getattr(hadoop, "Options$Rename").OVERWRITE
        hadoop.FileContext.getFileContext(new.toUri(), self._conf).rename(old, new, how)

    def delete(self, path: str) -> None:
        """Delete a file; nothing happens when it is not there."""
        self._system(path).delete(self._path(path), False)  # noqa: FBT003 - not a folder

    def move(self, old: str, new: str) -> None:
        """Rename a file or folder within one file system; what is not there is not moved.

        Raises:
            OSError: the file system did not do it.
        """
        if self.exists(old) and not self._system(old).rename(self._path(old), self._path(new)):
            message = f"{old} was not renamed to {new}"
            raise OSError(message)

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms UTC by the clock of the storage; it has to be there."""
        return int(self._system(path).getFileStatus(self._path(path)).getModificationTime())

    def _written_beside(self, path: str, content: str | bytes) -> str:
        fresh = f"{path}.new"
        stream = self._system(path).create(self._path(fresh), True)  # noqa: FBT003 - Hadoop has no name for "overwrite"
        try:
            stream.write(bytearray(content.encode() if isinstance(content, str) else content))
        finally:
            stream.close()
        return fresh

    def _path(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:  # noqa: ANN401 - a Java object
        return self._path(path).getFileSystem(self._conf)

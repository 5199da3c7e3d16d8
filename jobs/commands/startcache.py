"""What a start of the command keeps for the next ones, in the user's cache folder: they take half the time.

The first start has Spark resolve its JARs, and keeps which they are. The next one names them, asks nobody, and keeps
the classes that it has loaded when it ends. Those that follow map these into memory, ready for use, instead of reading
them from JARs and checking them. Whoever removes the folder has the first start again.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zipfile import ZipFile

import pyspark
from pyspark.sql import SparkSession

from pipeline.config.deltaspark import package as delta
from pipeline.config.paths import is_s3
from pipeline.config.session import resolved

_MAGIC = (0xF00BABA8).to_bytes(4, "little")
"""What an archive of classes begins with; Java writes it last (`cdsConstants.hpp` of the JDK)."""
_LONGEST_S = 300
"""Java needs less to write an archive."""
_EVERYWHERE = ("module-info.class", "org/apache/spark/unused/UnusedStubClass.class")
"""Classes that many JARs bring, and nobody uses: Spark's build puts one into each of its own."""
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java would tell on standard output which classes it left out."""


@dataclass(frozen=True)
class Kept:
    """What is kept for starts that are alike.

    Attributes:
        folder: where it is kept.
        name: one for each Java, Spark, kind of storage, and choice of packages.
    """

    folder: Path
    name: str

    @classmethod
    def of(
        cls,
        java: Path,
        paths: Sequence[str],
        environment: Mapping[str, str] = os.environ,
        packages: Sequence[str] = (),
    ) -> "Kept":
        """What is kept for a Java, for the kind of storage that some paths lie in, and for what else a start needs.

        `XDG_CACHE_HOME` is honoured, as by other programs.
        """
        cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME', '/nonexistent')}/.cache"
        program = java.resolve()
        alike = [program, program.stat().st_mtime_ns, pyspark.__file__, pyspark.__version__]
        alike += [delta.__file__, any(map(is_s3, paths)), *packages]
        name = hashlib.sha256("\0".join(map(str, alike)).encode()).hexdigest()[:16]
        return cls(Path(cache) / "delayline", name)

    def jars(self) -> list[str]:
        """The JARs of an earlier start; none when there was none, or when one of them is gone.

        Whoever may write to the folder chooses what runs as this user: then it is not used.
        """
        try:
            if not _is_ours(self.folder):
                return []
            found = self._list.read_text(encoding="utf-8").split("\n")
        except OSError:
            return []
        return found if all(map(_is_jar, found)) else []

    def keep_jars(self, spark: SparkSession) -> None:
        """Keep which JARs Spark has resolved. A cache folder that cannot be written keeps nothing."""
        own = map(str, (Path(pyspark.__file__).parent / "jars").glob("*.jar"))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(self.folder):
                return
            self._list.write_text("\n".join(lacking(map(str, resolved(spark)), own)), encoding="utf-8")
        except OSError:
            return

    def java_options(self) -> str:
        """Options that use the classes that are kept, or keep them when Java ends; none without the JARs.

        An archive is of a class path, so the JARs have to be named as they were.
        """
        if not self.jars():
            return ""
        match self._state():
            case "complete":
                return f"-XX:SharedArchiveFile={self._archive} -Xshare:auto {_QUIET}"
            case "missing":
                # One start at a time: it takes seconds more at its begin, and ten of a processor at its end.
                with suppress(OSError):
                    self._archive.touch()
                return f"-XX:ArchiveClassesAtExit={self._archive} {_QUIET}"
        return ""

    def _state(self) -> Literal["complete", "missing", "begun"]:
        """Whether the archive is there; `begun`: Java writes it, or will do so when a start of these minutes has ended.

        Java may be at it still when the command has ended. What a killed one has left half done is written again.
        """
        try:
            with self._archive.open("rb") as file:
                if file.read(len(_MAGIC)) == _MAGIC:
                    return "complete"
            return "begun" if time.time() - self._archive.stat().st_mtime < _LONGEST_S else "missing"
        except OSError:
            return "missing"

    @property
    def _list(self) -> Path:
        return self.folder / f"jars-{self.name}.txt"

    @property
    def _archive(self) -> Path:
        return self.folder / f"classes-{self.name}.jsa"


def _is_ours(folder: Path) -> bool:
    """Whether a folder is this user's, and nobody else may write to it."""
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _is_jar(path: str) -> bool:
    return path.endswith(".jar") and Path(path).is_file()


def lacking(found: Iterable[str], own: Iterable[str]) -> list[str]:
    """Paths of JARs less those with classes that others bring in a version of their own, which Spark prefers."""
    known = {name for path in own for name in _classes(path)}
    return [path for path in found if known.isdisjoint(_classes(path))]


def _classes(path: str) -> set[str]:
    with ZipFile(path) as jar:
        return {name for name in jar.namelist() if name.endswith(".class") and not name.endswith(_EVERYWHERE)}

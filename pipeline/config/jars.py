"""The JARs that Spark resolves: their sums are in `conf/jars.lock`, and others are not worked with."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipeline.config.errors import PipelineError

LOCK = Path(__file__).resolve().parents[2] / "conf" / "jars.lock"
"""A line for each: sha256 and name, as `sha256sum --check` takes them."""


class StrangeJar(PipelineError):
    """A JAR that Spark resolved is another one than the lock says: a mirror or a cache gives other files.

    Remove it from the folder of Ivy, look where Spark gets its packages from, and start again.
    """

    def __init__(self, path: str, found: str, expected: str | None) -> None:
        """Name the file, its sum, and the one that it should have; None: nothing of delayline needs it."""
        super().__init__(f"{path}: sha256 is {found}, expected: {expected or 'no such JAR'}; see docs/security.md")
        self.path, self.found, self.expected = path, found, expected


def locked() -> Mapping[str, str]:
    """The sums by the names of the files, in which Ivy writes group, name and version."""
    lines = (line.split() for line in LOCK.read_text(encoding="utf-8").splitlines())
    return {name: known for known, name in lines}


def check_jars(jars: Sequence[Path]) -> None:
    """Look at JARs that were resolved. Those of folders in which there is none of ours are somebody's own.

    Raises:
        StrangeJar: the sum of one is another one, or one came with ours that is not expected.
    """
    sums = locked()
    ours = {jar.parent for jar in jars if jar.name in sums}
    for jar in jars:
        if jar.parent in ours and (found := sum_of(jar)) != sums.get(jar.name):
            raise StrangeJar(str(jar), found, sums.get(jar.name))


def sum_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def jar_path(text: str) -> Path:
    """The path of a JAR as Spark names it, which is a URI or a plain path."""
    return Path("/" + unquote(urlsplit(text).path).lstrip("/")) if text.startswith("file:") else Path(text)

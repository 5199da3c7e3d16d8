"""What brokers on this machine share: Java, its packages, and ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pyspark

FOLDER = Path.home() / ".ivy2" / "delayline"
"""What was fetched stays here, outside the tree."""


class NoJava(Exception):
    """There is no Java on this machine."""


def java() -> str:
    """The command.

    Raises:
        NoJava: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home is None and shutil.which("java") is None:
        raise NoJava("Java was not found; a broker needs it")
    return "java" if home is None else str(Path(home, "bin", "java"))


def fetched(name: str, *told: str) -> str:
    """The class path of packages of Maven Central, by the Ivy that Spark brings; the first call downloads them."""
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}-{os.getpid()}.classpath"
    command = [java(), "-jar", str(ivy), *told, "-confs", "default", "-cachepath", str(path)]
    subprocess.run(command, check=True, capture_output=True, cwd=FOLDER)  # noqa: S603
    text = path.read_text().strip()
    path.unlink()
    return text


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

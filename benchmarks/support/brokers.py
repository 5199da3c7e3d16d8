"""What brokers on this machine share: Java, its packages, ports, and a process that is killed and started again."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TypeVar

import pyspark

FOLDER = Path.home() / ".ivy2" / "delayline"
"""What was fetched stays here, outside the tree."""
_CHECKED_BEFORE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_CHECKED_BEFORE)
"""Options of a JVM that lives for minutes: code is compiled fast and plainly. Classes are those that everybody has:
to check the bytecode of ten thousand of them once more takes a second or two of a processor."""
# The broker ends when whoever started it does: that closes the pipe.
_SHELL = '"$@" </dev/null & read -r _; kill -9 $! 2>/dev/null; wait'
_LOOK_S, _PATIENCE_S = 0.2, 120.0


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


class Server(ABC):
    """A process with a folder: what it says is in `broker.log` there, what it keeps is there, too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._log, self._before = folder, folder / "broker.log", 0
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What is started."""

    @abstractmethod
    def is_up(self) -> bool:
        """Whether it does what it is for."""

    def is_stuck(self) -> bool:
        """Whether it will never be up, and has to be started again."""
        return False

    def start(self) -> None:
        """Start it, and wait until it is up.

        Raises:
            TimeoutError: it ended, or was not up in time.
        """
        end = time.monotonic() + _PATIENCE_S
        self._begin()
        while self.is_stuck() or not self.is_up():
            if time.monotonic() > end:
                raise TimeoutError(self.said()[-2_000:])
            if self.is_stuck():
                self.kill()
                self._begin()
            Event().wait(_LOOK_S)

    def said(self) -> str:
        """What the process has said."""
        return self._log.read_bytes()[self._before :].decode(errors="replace")

    def _begin(self) -> None:
        with self._log.open("ab") as log:
            self._before = log.tell()
            command = ["sh", "-c", _SHELL, "sh", *self.command()]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder)  # noqa: S603

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


Found = TypeVar("Found", bound=Server)


@contextmanager
def running(server: Found) -> Iterator[Found]:
    """A server that runs, and is ended."""
    try:
        server.start()
        yield server
    finally:
        server.kill()


def fetched(name: str, *words: str) -> str:
    """The class path of packages of Maven Central, by the Ivy that Spark brings; the first call downloads them.

    It is kept under the name, which has the version: Ivy looks for seconds for what is there.
    """
    kept = FOLDER / f"{name}.classpath"
    text = kept.read_text() if kept.exists() else ""
    if text and all(Path(each).exists() for each in text.split(os.pathsep)):
        return text
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}-{os.getpid()}.classpath"
    command = [java(), "-jar", str(ivy), *words, "-confs", "default", "-cachepath", str(path)]
    subprocess.run(command, check=True, capture_output=True, cwd=FOLDER)  # noqa: S603
    text = path.read_text().strip()
    path.write_text(text)
    path.rename(kept)
    return text


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

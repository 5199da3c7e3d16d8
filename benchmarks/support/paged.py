"""The page of a warehouse in a process of its own, and looks at it, as the script of the page does."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.support import ROOT
from benchmarks.support.processes import started

_START_S, _LOOK_S = 60, 0.2


@dataclass(frozen=True)
class ServedPage:
    """A page that is served.

    Attributes:
        address: with a slash at its end.
        process: that serves it.
    """

    address: str
    process: subprocess.Popen[bytes]

    def look(self, path: str = "") -> tuple[float, int]:
        """Ask for the inside of a screen; how long that took, s, and how many bytes it has."""
        begun = time.perf_counter()
        asked = Request(f"{self.address}{path}", headers={"X-Fragment": "1"})  # noqa: S310 - our own page
        with urlopen(asked, timeout=_START_S) as answer:  # noqa: S310 - our own page
            size = len(answer.read())
        return time.perf_counter() - begun, size


@contextmanager
def served(root: str, folder: Path) -> Iterator[ServedPage]:
    """The page of a warehouse; its log goes to a folder."""
    command, log = [sys.executable, "-m", "jobs.cli", "web", "--warehouse", root, "--port", "0"], folder / "page.log"
    with started(command, log, {"PYTHONPATH": str(ROOT)}) as page:
        end = time.monotonic() + _START_S
        while (found := re.search(r"http://\S+/", _said(log))) is None:
            if page.poll() is not None or time.monotonic() > end:
                message = f"the page did not start: {_said(log)}"
                raise SystemExit(message)
            time.sleep(_LOOK_S)
        yield ServedPage(found[0], page)


def _said(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")

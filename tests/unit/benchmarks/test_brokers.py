"""Servers of tests and benchmarks: started, started again when they are stuck, and ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="brokers come by the Ivy that Spark brings")

from benchmarks.support.brokers import Server, running


class Echo(Server):
    """Says its word each time it is begun, and stays; stuck until it was begun so often."""

    wanted = 3

    def command(self) -> list[str]:
        """A process that says how often it was begun."""
        return ["sh", "-c", "echo begun >> begins; echo ready; exec tail -f /dev/null"]

    @property
    def begins(self) -> int:
        """How often it was begun."""
        file = self.folder / "begins"
        return len(file.read_text().split()) if file.exists() else 0

    def is_stuck(self) -> bool:
        """It has said its word too few times."""
        return "ready" in self.said() and self.begins < self.wanted

    def is_up(self) -> bool:
        """It has said its word."""
        return "ready" in self.said()


def test_a_server_that_is_stuck_is_started_again_and_ends_with_its_block(tmp_path: Path) -> None:
    """What it says belongs to the process that runs; the log has all of it."""
    with running(Echo(tmp_path)) as server:
        assert (server.begins, server.said()) == (3, "ready\n")
        process = server._process
        assert isinstance(process, subprocess.Popen)
        assert process.poll() is None
    assert process.poll() is not None
    assert (tmp_path / "broker.log").read_text() == "ready\n" * 3

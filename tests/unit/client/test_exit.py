"""A process that ends without a word takes the threads of its client along."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from tests.support.modules import ROOT

PROGRAM = """
import atexit, sys, threading, time

def last():
    print(sorted({each.name for each in threading.enumerate() if each.name.startswith("delayline")}), flush=True)

atexit.register(last)
from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client

client = Client(sys.argv[1])
consumer = client.subscribe("u", "s", ConsumerType.Shared, message_listener=lambda *_: None)
last()
sys.exit(3)
"""


def test_no_thread_that_reads_or_appends_is_there_when_the_interpreter_ends(root: str) -> None:
    """One that came back from native code then ended the process by a segmentation fault: exit code -11."""
    command = [sys.executable, "-c", PROGRAM, root]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - ours
    names = ["delayline-consumer-events", "delayline-consumers", "delayline-listener"]
    assert (done.stdout.splitlines(), done.returncode) == ([str(names), "[]"], 3), done.stderr

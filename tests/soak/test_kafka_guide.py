"""The guide of `docs/kafka.md`, typed as it stands, and the demo: with brokers of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import brokers
from tests.support.brokerguide import typed
from tests.support.modules import ROOT

_PATIENCE_S = 400


def test_a_stranger_who_types_the_guide_gets_the_timeout(tmp_path: Path) -> None:
    """Topic in, topic out, from nothing; orders wait for 5 s."""
    with brokers.kafka(tmp_path) as kafka:
        said = typed(tmp_path, "kafka.md", {"localhost:9092": kafka.servers, "30 SECONDS": "5 SECONDS"})
    assert "b'order-1' b'order-1 was not paid' [('shop', b'7')]" in said
    assert re.search(r"orders +taken [01] +behind (\d|unknown)[^\n]* +reading", said)


def test_the_demo_shows_orders_that_time_out(tmp_path: Path) -> None:
    """It starts its own broker, and says by itself whether all was right."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo_kafka"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("timed out order-") == 9
    assert "8 of 8 timeouts came, none early, none twice" in done.stdout

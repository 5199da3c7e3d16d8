"""The guide of `docs/kafka.md`, typed as it stands, and the demo: with brokers of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import brokers, guide
from tests.support.modules import ROOT

if TYPE_CHECKING:
    from benchmarks.support.kafka import Broker

_PATIENCE_S = 400
_WAITED = "30 SECONDS"


def typed(folder: Path, kafka: Broker) -> str:
    """The page, in a folder that has what it names, for a broker that is not at its port; orders wait for 5 s."""
    (folder / "conf").mkdir()
    for name in ("local.toml", "kafka.toml"):
        text = (ROOT / "conf" / name).read_text(encoding="utf-8").replace("localhost:9092", kafka.servers)
        (folder / "conf" / name).write_text(text.replace(_WAITED, "5 SECONDS"), encoding="utf-8")
    command = folder / "bin" / "delayline"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec "{sys.executable}" -m jobs.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    page = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
    assert page.count("localhost:9092") > 5
    assert _WAITED in page
    (folder / "page.md").write_text(page.replace("localhost:9092", kafka.servers), encoding="utf-8")
    return str(folder / "page.md")


def test_a_stranger_who_types_the_guide_gets_the_timeout(tmp_path: Path) -> None:
    """Topic in, topic out, from nothing."""
    with brokers.kafka(tmp_path) as kafka:
        page = typed(tmp_path, kafka)
        known = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-P", guide.__file__, page],
            cwd=tmp_path,
            env=known,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "b'order-1' b'order-1 was not paid' [('shop', b'7')]" in done.stdout
    assert re.search(r"orders +taken [01] +behind (\d|unknown) +reading", done.stdout)


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

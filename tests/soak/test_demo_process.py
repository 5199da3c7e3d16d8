"""The demo, on a small draw of the flights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.modules import ROOT


def test_a_small_demo_passes_its_own_check(tmp_path: Path) -> None:
    """It prints arrivals, the verdict and the answers, and leaves the picture and the tables."""
    folder = tmp_path / "demo"
    words = ["demo", "--output", str(folder), "--flights", "3000", "--step", "42d"]
    command = [sys.executable, "-m", "jobs.cli", *words]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)  # noqa: S603
    assert said.returncode == 0, said.stderr
    assert len(re.findall(r"live/watcher  sent for \+\d+ s  \(\d+\.\d{3} s late\)", said.stdout)) == 7
    found = re.search(
        r"expected 6,000 = accepted 6,000 = delivered 6,000, (\d+) of them two hours later; missing 0, ", said.stdout
    )
    assert found is not None
    assert int(found[1]) > 0
    assert f"  reminders: {found[1]} shifted" in said.stdout
    assert said.stdout.count("\nSELECT ") == 4
    assert re.search(r"dead letters +2  poison-11, poison-20\n  neither +0\n", said.stdout)
    assert (folder / "due_load.png").stat().st_size > 10_000
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)

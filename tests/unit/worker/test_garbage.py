"""Spark's Python workers collect garbage after each task: what was loaded is left out of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

RELEASE = "next(release((0, 0), [], State), None)"


def test_a_worker_that_did_something_leaves_its_modules_out_of_collections() -> None:
    """A collection after each task took longer than the task."""
    program = (
        "import gc\nfrom unittest.mock import Mock\n"
        "from pipeline.worker.release import release\n"
        "State = Mock(hasTimedOut=True, exists=False, **{'getCurrentWatermarkMs.return_value': 5})\n"
        f"assert gc.get_freeze_count() == 0\n{RELEASE}\nfirst = gc.get_freeze_count()\n"
        f"{RELEASE}\nprint(first, gc.get_freeze_count() == first)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)  # noqa: S603 - our own
    frozen, once = done.stdout.split()
    assert int(frozen) > 50_000
    assert once == "True"

"""What every tier shares: the Hypothesis profiles, what tests do not wait for, and which files share a process."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from pipeline.storage.files import sync_files
from tests.support.sharing import Shared, give_way

# Machines are shared and slow at times: a deadline per example would fail tests that are right.
settings.register_profile(
    "default",
    max_examples=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A longer search, for nights and before a release: HYPOTHESIS_PROFILE=soak make test-core
settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
# No test cuts the power, and each commit would wait for the disk several times.
sync_files(on=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Shared | None:
    """Take it for tests that keep to their files."""
    return Shared(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure() -> None:
    """Say whose work may wait."""
    give_way()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected out of collections of garbage: it stays, and each would walk through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()

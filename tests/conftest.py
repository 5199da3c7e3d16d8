"""What every tier shares: the Hypothesis profiles, garbage that is not collected, and which files share a process."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.sharing import Shared

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Shared | None:
    """Take it for tests that keep to their files."""
    return Shared(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected out of collections of garbage: it stays, and each would walk through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()

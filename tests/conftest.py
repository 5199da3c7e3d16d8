"""What every tier shares: the Hypothesis profiles, garbage that is not collected, and which files share a process."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# Machines are shared and slow at times: a deadline per example would fail tests that are right.
settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A longer search, for nights and before a release: HYPOTHESIS_PROFILE=soak make test-core
settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


_WITH_A_BROKER = re.compile("tests/stream/test_(kafka|pulsar)_")


class OneBroker(LoadFileScheduling):  # type: ignore[misc] # it ships no types
    """Each file keeps to one process; the files with a broker of one kind to the same one, which starts it once."""

    def _split_scope(self, nodeid: str) -> str:
        """What keeps to one process, by the name of a test."""
        found = _WITH_A_BROKER.match(nodeid)
        return nodeid.partition("::")[0] if found is None else found[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneBroker | None:
    """Take it for tests that keep to their files."""
    return OneBroker(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected out of collections of garbage: it stays, and each would walk through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()

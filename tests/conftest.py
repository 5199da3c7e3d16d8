"""What every tier shares: the Hypothesis profiles, and what collections of garbage leave out."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

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


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of collections of garbage: it stays, and each would walk through it."""
    gc.freeze()

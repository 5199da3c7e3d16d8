"""What every tier shares: the Hypothesis profiles."""

from __future__ import annotations

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

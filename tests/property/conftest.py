"""The long search of the property tests: HYPOTHESIS_PROFILE=soak runs 50 times as many examples."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("soak", settings.get_profile("default"), max_examples=5_000)
if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    settings.load_profile("soak")

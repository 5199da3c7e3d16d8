"""What the smoke tests have before the first of them starts a process."""

from __future__ import annotations

import pytest

from tests.support.jars import fetch, needed


@pytest.fixture(scope="session", autouse=True)
def jars() -> None:
    """Two first starts at once would fetch into one folder, and a start that fetches may take minutes."""
    fetch(*needed())

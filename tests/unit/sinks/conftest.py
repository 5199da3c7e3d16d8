"""What tests of sinks share."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from tests.support.dispatching import Dispatching


@pytest.fixture
def dispatch(tmp_path: Path) -> Dispatching:
    """Of a new warehouse, at T."""
    return Dispatching.of_new(str(tmp_path))

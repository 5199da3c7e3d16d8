"""The Spark session and a fresh warehouse folder for stream tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import session


@pytest.fixture
def spark() -> SparkSession:
    """The session of the test run."""
    return session()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder for one warehouse."""
    return str(tmp_path / "warehouse")

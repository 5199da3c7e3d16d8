"""The Spark session, brokers, and a fresh warehouse folder for stream tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from tests.support.pulsar import broker
from tests.support.spark import session

if TYPE_CHECKING:
    from benchmarks.support.pulsar import Broker


@pytest.fixture
def spark() -> SparkSession:
    """The session of the test run."""
    return session()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder for one warehouse."""
    return str(tmp_path / "warehouse")


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Pulsar broker for all, which a test may kill and start again."""
    with broker(tmp_path_factory.mktemp("pulsar")) as found:
        yield found

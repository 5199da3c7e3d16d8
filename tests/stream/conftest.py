"""The Spark session, brokers, and a fresh warehouse folder for stream tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from tests.support import brokers
from tests.support.spark import session
from tests.support.worlds import SHELLS, Play

if TYPE_CHECKING:
    from benchmarks.support.kafka import Broker as KafkaBroker
    from benchmarks.support.pulsar import Broker as PulsarBroker


@pytest.fixture
def spark() -> SparkSession:
    """The session of the test run."""
    return session()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder for one warehouse."""
    return str(tmp_path / "warehouse")


@pytest.fixture(params=SHELLS)
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a script here; in `make soak` also on Spark."""
    found: Play = request.param
    return found


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """One Pulsar broker for all, which a test may kill and start again."""
    with brokers.pulsar(tmp_path_factory.mktemp("pulsar")) as found:
        yield found


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One Kafka broker for all, which a test may kill and start again."""
    with brokers.kafka(tmp_path_factory.mktemp("kafka")) as found:
        yield found

"""Brokers for tests (`benchmarks.support`): without Java or a client they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from benchmarks.support.kafka import Broker as Kafka
    from benchmarks.support.pulsar import Broker as Pulsar

TENANT, DEDUPLICATED = "public/default", "public/once"
"""Namespaces of Pulsar: one, and one whose topics drop what they have already."""


def pulsar_client() -> Any:  # noqa: ANN401 - an extra that need not be installed
    """The client's package, or a skipped test."""
    return pytest.importorskip("pulsar", reason="the client of Pulsar is not installed (the extra `pulsar`)")


@contextmanager
def kafka(folder: Path) -> Iterator[Kafka]:
    """A broker that runs, and is ended; a skipped test where there is no Java or no client."""
    pytest.importorskip("confluent_kafka", reason="the client of Kafka is not installed (the extra `kafka`)")
    _need_java()
    from benchmarks.support.kafka import broker  # noqa: PLC0415 - it imports the client

    with broker(folder) as found:
        yield found


@contextmanager
def pulsar(folder: Path) -> Iterator[Pulsar]:
    """The same of Pulsar."""
    pulsar_client()
    _need_java()
    from benchmarks.support.pulsar import broker  # noqa: PLC0415 - it imports the client

    with broker(folder) as found:
        yield found


def _need_java() -> None:
    from benchmarks.support.brokers import NoJava, java  # noqa: PLC0415 - it imports Spark

    try:
        java()
    except NoJava as error:
        pytest.skip(str(error))

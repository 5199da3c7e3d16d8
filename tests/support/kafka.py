"""A Kafka broker for tests (`benchmarks.support.kafka`): without Java or the client they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from benchmarks.support.kafka import Broker


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that runs, and is ended; a skipped test where there is no Java or no client."""
    pytest.importorskip("confluent_kafka", reason="the client of Kafka is not installed (the extra `kafka`)")
    from benchmarks.support.brokers import NoJava, java  # noqa: PLC0415 - it imports the client
    from benchmarks.support.kafka import broker as running  # noqa: PLC0415

    try:
        java()
    except NoJava as error:
        pytest.skip(str(error))
    with running(folder) as found:
        yield found

"""A Pulsar broker for tests (`benchmarks.support.pulsar`): without Java or the client they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from benchmarks.support.pulsar import Broker

TENANT, DEDUPLICATED = "public/default", "public/once"
"""Namespaces: one, and one whose topics drop what they have already."""


def client() -> Any:  # noqa: ANN401 - an extra that need not be installed
    """The client's package, or a skipped test."""
    return pytest.importorskip("pulsar", reason="the client of Pulsar is not installed (the extra `pulsar`)")


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that runs, and is ended; a skipped test where there is no Java or no client."""
    client()
    from benchmarks.support.brokers import NoJava, java  # noqa: PLC0415 - it imports the client
    from benchmarks.support.pulsar import broker as running  # noqa: PLC0415

    try:
        java()
    except NoJava as error:
        pytest.skip(str(error))
    with running(folder) as found:
        yield found

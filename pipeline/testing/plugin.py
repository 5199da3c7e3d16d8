"""The plugin for pytest: whoever has the package installed has the fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.testing.warehouse import VirtualWarehouse, warehouse


@pytest.fixture
def delayline_warehouse() -> Iterator[VirtualWarehouse]:
    """A warehouse of its own for a test, whose clock stands until the test turns it."""
    with warehouse() as made:
        yield made

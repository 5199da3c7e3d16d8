"""The plugin for pytest: whoever has the package installed has the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pipeline.testing.warehouse import VirtualWarehouse


@pytest.fixture
def delayline_warehouse() -> Iterator[VirtualWarehouse]:
    """A warehouse of its own for a test, whose clock stands until the test turns it."""
    # Each run of pytest where the package is installed loads this module.
    from pipeline.testing.warehouse import warehouse  # noqa: PLC0415

    with warehouse() as made:
        yield made

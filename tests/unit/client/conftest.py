"""A new warehouse, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.client import Client
from tests.support.client import new_warehouse


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def client(root: str) -> Iterator[Client]:
    """A client of it."""
    client = Client(f"file://{root}", memory_limit_bytes=1 << 20)
    yield client
    client.shutdown()

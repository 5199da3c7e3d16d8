"""Tests of one's own programs, with time that a test turns: what `import delayline.testing` gives."""

from pipeline.testing.aio import AsyncVirtualWarehouse, async_warehouse
from pipeline.testing.warehouse import VirtualWarehouse, warehouse

__all__ = ["AsyncVirtualWarehouse", "VirtualWarehouse", "async_warehouse", "warehouse"]

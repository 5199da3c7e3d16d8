"""`pipeline.testing.warehouse` for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Unpack

from pipeline.client import aio
from pipeline.testing.warehouse import Span, VirtualWarehouse, warehouse


class AsyncVirtualWarehouse:
    """As `VirtualWarehouse`; nothing here blocks the loop, so that tasks work while time passes.

    What tasks do is not waited for: a test awaits them.
    """

    def __init__(self, made: VirtualWarehouse) -> None:
        self._made = made
        self._clients: list[aio.Client] = []

    @property
    def root(self) -> str:
        """The address of the warehouse, for clients and commands."""
        return self._made.root

    @property
    def now(self) -> datetime:
        """The time."""
        return self._made.now

    def client(self, **options: Any) -> aio.Client:  # noqa: ANN401 - as the client takes them
        """A client of the warehouse, which is closed at the end; with the options of `delayline.aio.Client`."""
        made: aio.Client = aio.Client(self.root, **options)
        self._clients.append(made)
        return made

    async def advance(self, **span: Unpack[Span]) -> None:
        """As `VirtualWarehouse.advance`."""
        await asyncio.to_thread(self._made.advance, **span)

    async def advance_to(self, time: datetime) -> None:
        """As `VirtualWarehouse.advance_to`."""
        await asyncio.to_thread(self._made.advance_to, time)

    async def run_until_idle(self) -> None:
        """As `VirtualWarehouse.run_until_idle`."""
        await asyncio.to_thread(self._made.run_until_idle)

    async def close(self) -> None:
        """Close the clients that `client` made."""
        for each in self._clients:
            await each.close()


@asynccontextmanager
async def async_warehouse(
    start: datetime | None = None, folder: str | None = None
) -> AsyncIterator[AsyncVirtualWarehouse]:
    """As `pipeline.testing.warehouse.warehouse`."""
    entered = warehouse(start, folder)
    made = AsyncVirtualWarehouse(await asyncio.to_thread(entered.__enter__))
    try:
        yield made
    finally:
        await made.close()
        await asyncio.to_thread(entered.__exit__, None, None, None)

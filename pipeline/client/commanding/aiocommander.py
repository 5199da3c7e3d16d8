"""The methods of a client for an event loop by which commands are given."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from pipeline.client.commanding.commands import Command, HowCommanded
from pipeline.client.commanding.outcomes import Outcome

if TYPE_CHECKING:
    from pipeline.client.client import Client


class Commander:
    """Gives commands over messages that wait."""

    _client: Client

    async def cancel(
        self, topic: str, subscription_name: str | None = None, *, dry_run: bool = False, **how: Unpack[HowCommanded]
    ) -> Command:
        """Cancel messages that wait, as `delayline.Client.cancel` does.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.cancel, topic, subscription_name, dry_run=dry_run, **how)

    async def reschedule(
        self,
        topic: str,
        subscription_name: str | None = None,
        *,
        to: datetime,
        dry_run: bool = False,
        **how: Unpack[HowCommanded],
    ) -> Command:
        """Give messages that wait another due time, as `delayline.Client.reschedule` does.

        Raises:
            Error: what it raises.
        """
        call = self._client.reschedule
        return await asyncio.to_thread(call, topic, subscription_name, to=to, dry_run=dry_run, **how)

    async def shift(
        self,
        topic: str,
        subscription_name: str | None = None,
        *,
        span: timedelta,
        dry_run: bool = False,
        **how: Unpack[HowCommanded],
    ) -> Command:
        """Let messages that wait come later or earlier by a span of time, as `delayline.Client.shift` does.

        Raises:
            Error: what it raises.
        """
        call = self._client.shift
        return await asyncio.to_thread(call, topic, subscription_name, span=span, dry_run=dry_run, **how)

    async def release_now(
        self, topic: str, subscription_name: str | None = None, *, dry_run: bool = False, **how: Unpack[HowCommanded]
    ) -> Command:
        """Let messages that wait come now, as `delayline.Client.release_now` does.

        Raises:
            Error: what it raises.
        """
        return await asyncio.to_thread(self._client.release_now, topic, subscription_name, dry_run=dry_run, **how)

    async def undo(self, command_id: str, *, by: str | None = None, reason: str | None = None) -> Command:
        """Take a command back, as `delayline.Client.undo` does.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.undo, command_id, by=by, reason=reason)

    async def commands(self, limit: int = 20) -> list[Outcome]:
        """What became of the last commands, as `delayline.Client.commands` says it.

        Raises:
            DelaylineError: as there.
        """
        return await asyncio.to_thread(self._client.commands, limit)

"""`delayline send`: messages from the command line, from files or from stdin into the inbox."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from jobs.commands.durations import UNITS_MS, spell
from jobs.commands.jsonform import json_line, record
from jobs.commands.times import spoken
from pipeline.client.producing.inbox import Message, checker, drawn_name, send
from pipeline.config.errors import PipelineError

_MESSAGES, _BYTES = 50_000, 16 * 1024 * 1024
"""One commit takes up to so many messages and bytes: long input is sent as it comes, in bounded memory."""


class Outbox:
    """Messages of one form that are gathered for a commit.

    Attributes:
        producer_name: by which the messages are named, with numbers from 0 on.
        sent: how many were sent, also when a later one failed.
    """

    def __init__(self, root: str, form: Message) -> None:
        self.producer_name, self.sent = drawn_name(), 0
        self._root, self._check = root, checker(root)
        self._form = replace(form, producer_name=self.producer_name)
        self._gathered, self._bytes = list[Message](), 0

    def take(self, payload: bytes, read_at: datetime) -> None:
        """Gather a message that was read at a time.

        Raises:
            MessageTooBig: the job takes no such payload. It was not gathered.
            InvalidMessage: the same of its delay.
        """
        number = self.sent + len(self._gathered)
        message = replace(self._form, payload=payload, publish_time=read_at, sequence_id=number)
        self._check(message)
        self._gathered.append(message)
        self._bytes += len(payload)

    @property
    def is_full(self) -> bool:
        """Whether it is time to send what is gathered."""
        return len(self._gathered) >= _MESSAGES or self._bytes >= _BYTES

    def send(self) -> None:
        """Send what is gathered, in one commit.

        Raises:
            NoWarehouse: the folder has no inbox.
            StillConflicting: other writers were faster every time.
        """
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        self.sent += send(self._root, gathered)


def send_whole(outbox: Outbox, payloads: Iterable[bytes]) -> None:
    """Send what is there as a whole; if one of the messages is refused, those of the same commit are not sent."""
    for payload in payloads:
        outbox.take(payload, datetime.now(UTC))
        if outbox.is_full:
            outbox.send()
    outbox.send()


def send_lines(outbox: Outbox, lines: Iterable[tuple[bytes, datetime] | None]) -> None:
    """Send lines as they come, and at each None what came before it.

    If one is refused, those before it are sent, so that whoever knows how many were sent knows which one it was.
    """
    for each in lines:
        try:
            if each is not None:
                outbox.take(*each)
        except PipelineError:
            outbox.send()
            raise
        if each is None or outbox.is_full:
            outbox.send()
    outbox.send()


def payloads(text: str | None, files: list[Path]) -> Iterator[bytes]:
    """The argument, else each file as a whole."""
    if text is not None:
        # Bytes of the command line that are no UTF-8 are in the text as surrogates; they are sent as they came.
        yield os.fsencode(text)
    else:
        yield from (file.read_bytes() for file in files)


def summary(outbox: Outbox, form: Message, *, as_json: bool) -> str:
    """How many were sent, their ids, and when they come, if a time was asked for."""
    ids = [f"{outbox.producer_name}:{number}" for number in sorted({0, outbox.sent - 1}) if number >= 0]
    if as_json:
        more = {} if form.deliver_at is None else record(deliver_at=form.deliver_at)
        return json_line({"sent": outbox.sent, "message_ids": ids} | more)
    sent = f"{outbox.sent} sent{' as ' if ids else ''}{' to '.join(ids)}"
    if form.deliver_at is not None:
        return f"{sent}, to come at {spoken(form.deliver_at)}"
    after_ms = form.deliver_after_ms
    if after_ms is None:
        return sent
    return f"{sent}, to come after {spell(after_ms) if after_ms >= UNITS_MS['s'] else f'{after_ms}ms'}"

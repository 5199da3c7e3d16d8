"""`delayline send`: messages from the command line, from files or from stdin into the inbox."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from pipeline.client.inbox import Message, send

_MESSAGES, _BYTES = 50_000, 16 * 1024 * 1024
"""One commit takes up to so many messages and bytes: long input is sent as it comes, in bounded memory."""


def send_all(root: str, form: Message, payloads: Iterable[bytes]) -> int:
    """Send each payload in the form of one message; give how many were sent.

    Raises:
        NoWarehouse: the folder has no inbox.
        StillConflicting: other writers were faster every time; earlier commits stand.
    """
    return sum(send(root, chunk) for chunk in _chunks(replace(form, payload=payload) for payload in payloads))


def payloads(text: str | None, files: list[Path], stdin: BinaryIO) -> Iterator[bytes]:
    """The argument, else each file as a whole, else each line of stdin without its end."""
    if text is not None:
        # Bytes of the command line that are no UTF-8 are in the text as surrogates; they are sent as they came.
        yield os.fsencode(text)
    elif files:
        yield from (file.read_bytes() for file in files)
    else:
        yield from (line.rstrip(b"\r\n") for line in stdin)


def _chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    chunk: list[Message] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message.payload)
        if len(chunk) >= _MESSAGES or size >= _BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

"""What a message may be: whoever sends learns at once what ingest would reject later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.client.exceptions import InvalidMessage, MessageTooBig
from pipeline.config.errors import check_text
from pipeline.config.paths import usable
from pipeline.config.spelling import aside_ms
from pipeline.storage.files import Files
from pipeline.storage.texts import ENTRY_BYTES, MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_PROPERTIES_BYTES
from pipeline.subscriptions.limits import Limits, limits_of


@dataclass
class Bounds:
    """What ingest takes at most, as far as it is known. It is looked up once, and again before a message is refused.

    Attributes:
        root: the warehouse.
    """

    root: str
    _known: Limits | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Look it up."""
        self._look()

    def check(self, size: int, delay_ms: int) -> None:
        """Look at the bytes of a payload, and at how long after it is sent it is to come, ms.

        Raises:
            MessageTooBig: the payload is larger than `max_payload_bytes` of the job.
            InvalidMessage: the delay is longer than `max_delay_ms` of the job.
        """
        if self._is_refused(size, delay_ms):
            # The job may have been started with other settings since.
            self._look()
        if self._known is None or not self._is_refused(size, delay_ms):
            return
        if size > self._known.max_payload_bytes:
            raise MessageTooBig("payload", size, self._known.max_payload_bytes)
        raise too_late(delay_ms, self._known.max_delay_ms, "the job's max_delay_ms")

    def _is_refused(self, size: int, delay_ms: int) -> bool:
        known = self._known
        return known is not None and (size > known.max_payload_bytes or delay_ms > known.max_delay_ms)

    def _look(self) -> None:
        self._known = limits_of(Files(), usable(self.root))


def too_late(delay_ms: int, most_ms: int, by: str) -> InvalidMessage:
    """The error of a delay that is longer than somebody allows, ms."""
    most = f"{most_ms}{aside_ms('delay_ms', most_ms)} at most, by {by}"
    return InvalidMessage("delay_ms", delay_ms, most)


def check_name(name: str | None) -> None:
    """Look at the name of a producer, which travels with each of its messages.

    Raises:
        BadValue: it is no text.
        MessageTooBig: it is too long.
    """
    check_text("producer_name", name)
    if name is not None and (size := len(name.encode())) > MAX_NAME_BYTES:
        raise MessageTooBig("producer_name", size, MAX_NAME_BYTES)


def check_texts(key: str | None, properties: Mapping[str, str | None] | None, room: int = 0) -> None:
    """Look at how long the texts beside a payload are; there may be room for so many bytes more of properties.

    Raises:
        MessageTooBig: the key, or all properties together, are too long.
    """
    if key is not None and len(key) > MAX_KEY_BYTES // 4 and (size := len(key.encode())) > MAX_KEY_BYTES:
        raise MessageTooBig("key", size, MAX_KEY_BYTES)
    if properties:
        texts = (len(text.encode()) for pair in properties.items() for text in pair if text)
        if (size := sum(texts) + ENTRY_BYTES * len(properties)) > MAX_PROPERTIES_BYTES + room:
            raise MessageTooBig("properties", size, MAX_PROPERTIES_BYTES + room)

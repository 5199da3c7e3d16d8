"""The client: makes producers, consumers and readers of a warehouse. Names and defaults are those of the reference."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from pipeline.client.exceptions import (
    AlreadyClosed,
    ConnectError,
    InvalidConfiguration,
    InvalidTopicName,
    InvalidUrl,
)
from pipeline.client.options import CLIENT, PRODUCER, refuse
from pipeline.client.producer import Producer
from pipeline.client.producer_rows import Sender
from pipeline.client.producer_writer import Writer
from pipeline.client.schema import BytesSchema, Schema
from pipeline.config.errors import BadValue, check_text
from pipeline.config.paths import local_path, one_spelling

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
_BYTES = BytesSchema()


class Client:
    """Everything that a program does with a warehouse. Every method may be called from any thread.

    All producers of a client share one writing thread, so a program needs one client for a warehouse.
    """

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: int = 30,
        memory_limit_bytes: int = 0,
        stats_interval_in_seconds: int = 600,
        **refused: object,
    ) -> None:
        """Look at nothing yet.

        Args:
            service_url: the warehouse: a folder, `file:///...`, `s3://...`, `gs://...`, `abfss://...`.
            operation_timeout_seconds: so long a subscription may take to be registered.
            memory_limit_bytes: of contents that wait to be sent; 0: any number.
            stats_interval_in_seconds: so often the log gets a line with figures, at level INFO; 0: never.
            **refused: options of the reference that cannot be had: their defaults are taken, other values are refused.

        Raises:
            InvalidUrl: it is not the address of a warehouse.
            InvalidConfiguration: an option has a value that cannot be followed; the message says why.
        """
        refuse(CLIENT, refused)
        _check_limit("operation_timeout_seconds", operation_timeout_seconds)
        _check_limit("memory_limit_bytes", memory_limit_bytes)
        _check_limit("stats_interval_in_seconds", stats_interval_in_seconds)
        self._root = root_of(service_url)
        self._timeout_s = operation_timeout_seconds
        self._writer = Writer(self._root, memory_limit_bytes, stats_interval_in_seconds)
        self._producers: list[Producer] = []
        self._closed = False

    def create_producer(  # noqa: PLR0913 - the options of the reference
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema = _BYTES,
        *,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        max_pending_messages: int = 1_000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1_000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        **refused: object,
    ) -> Producer:
        """Make a producer of a topic.

        Args:
            topic: where its messages go. A topic begins with its first message.
            producer_name: a name by which the log knows it for good: no sequence id is sent twice under it, whatever
                is started again. One process at a time may use it. None: one is drawn, and the log is told nothing.
            schema: encodes contents.
            initial_sequence_id: the first message has the next one. None: goes on from what the log has of its name.
            send_timeout_millis: a message that the store did not take for so long fails; 0: it is tried for ever.
            max_pending_messages: so many messages may wait for the store.
            block_if_queue_full: who would be one too many waits, instead of failing.
            batching_enabled: messages of `send_async` wait a little for others to go in one commit.
            batching_max_messages: so many do not wait for more.
            batching_max_allowed_size_in_bytes: nor do so many bytes.
            batching_max_publish_delay_ms: nor does anything wait for longer.
            **refused: options of the reference that cannot be had: their defaults are taken, other values are refused.

        Raises:
            InvalidTopicName: the topic has no name.
            InvalidConfiguration: an option has a value that cannot be followed; the message says why.
            AlreadyClosed: the client is closed.
            NoWarehouse: there is no inbox.
            ConnectError: the store does not answer.
        """
        self._check_open()
        refuse(PRODUCER, refused)
        sender = Sender(
            checked_topic(topic),
            producer_name or f"delayline-{secrets.token_hex(6)}",
            named=bool(producer_name),
            timeout_s=_check_limit("send_timeout_millis", send_timeout_millis) / 1_000,
            most=_check_limit("max_pending_messages", max_pending_messages, 1),
            blocks=block_if_queue_full,
            delay_s=_check_limit("batching_max_publish_delay_ms", batching_max_publish_delay_ms) / 1_000,
            batch=_check_limit("batching_max_messages", batching_max_messages, 1) if batching_enabled else 1,
            batch_bytes=_check_limit("batching_max_allowed_size_in_bytes", batching_max_allowed_size_in_bytes, 1),
        )
        self._begin(sender, initial_sequence_id)
        made = Producer(sender, schema, self._writer.queue, self._forget)
        self._producers.append(made)
        return made

    def close(self) -> None:
        """Close all producers, consumers and readers; what was sent is in the store, or its error is raised.

        Raises:
            DelaylineError: the first error among messages without a callback since the last flush.
        """
        first: Exception | None = None
        for each in list(self._producers):
            try:
                each.close()
            except Exception as error:  # noqa: BLE001 - the others have to be closed, too
                first = first or error
        self.shutdown()
        if first is not None:
            raise first

    def shutdown(self) -> None:
        """End at once: what waits to be sent is refused with `AlreadyClosed`."""
        self._closed = True
        self._writer.queue.shut()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _begin(self, sender: Sender, initial_sequence_id: int | None) -> None:
        """Let a producer go on from its last message, or from where the caller says."""
        try:
            stored = self._writer.stored(sender)
        except (DeltaError, OSError) as error:
            raise ConnectError(self._root, error) from error
        begin = stored if initial_sequence_id is None else initial_sequence_id
        sender.acked = sender.queued = stored
        sender.numbered = begin

    def _forget(self, producer: Producer) -> None:
        if producer in self._producers:
            self._producers.remove(producer)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("client")


def root_of(url: str) -> str:
    """The folder of a warehouse, from its address.

    Raises:
        InvalidUrl: it is none.
    """
    scheme, colon, rest = url.partition("://")
    if not url.strip() or (colon and not rest.strip("/")):
        raise InvalidUrl(url)
    if colon and scheme in _STORES:
        return one_spelling(url)
    path = local_path(url)
    if path is None:
        raise InvalidUrl(url)
    return str(path)


def checked_topic(topic: object) -> str:
    """The topic.

    Raises:
        InvalidTopicName: it is none.
    """
    if not isinstance(topic, str) or not topic.strip():
        raise InvalidTopicName(topic)
    try:
        check_text("topic", topic)
    except BadValue as error:
        raise InvalidTopicName(topic) from error
    return topic


def _check_limit(option: str, value: object, low: int = 0) -> int:
    if not isinstance(value, int) or value < low:
        raise InvalidConfiguration(option, value, f"it must be {low} or more")
    return value

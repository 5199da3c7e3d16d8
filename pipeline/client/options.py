"""Options of the reference that cannot be had here: they are refused with the reason, never ignored.

Their defaults are taken, so that a program that spells them out moves over as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from inspect import Parameter, Signature, cleandoc, iscoroutinefunction, signature
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args

from pipeline.client.choices import (
    BatchingType,
    CompressionType,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pipeline.client.exceptions import InvalidConfiguration
from pipeline.client.schema import Schema
from pipeline.config.errors import BadValue, check_text

F = TypeVar("F", bound=Callable[..., Any])
Refused = Mapping[str, tuple[object, str]]
"""For each option the value that changes nothing, and why there is no other."""

_NO_BROKER = "a warehouse has no broker; who may read and write its files, its store says"
_NO_TLS = "there is no connection to a broker; the store's own address says whether it is encrypted"
_ONE_THREAD = "one thread writes for all producers of a client"
_NO_CRYPTO = "the client does not encrypt; encrypt the content, or let the store do it"

CLIENT: Refused = {
    "authentication": (None, _NO_BROKER),
    "io_threads": (1, _ONE_THREAD),
    "message_listener_threads": (1, "a listener runs in its consumer's own thread"),
    "concurrent_lookup_requests": (50_000, _NO_BROKER),
    "log_conf_file_path": (None, "the client logs with Python's logging"),
    "use_tls": (False, _NO_TLS),
    "tls_trust_certs_file_path": (None, _NO_TLS),
    "tls_allow_insecure_connection": (False, _NO_TLS),
    "tls_validate_hostname": (False, _NO_TLS),
    "tls_private_key_file_path": (None, _NO_TLS),
    "tls_certificate_file_path": (None, _NO_TLS),
    "connection_timeout_ms": (10_000, _NO_BROKER),
    "listener_name": (None, _NO_BROKER),
}
PRODUCER: Refused = {
    "compression_type": (CompressionType.NONE, "the files of the table are compressed"),
    "chunking_enabled": (False, "a message of any size is one row"),
    "properties": (None, "there is no broker that would show them; set properties of messages"),
    "batching_type": (BatchingType.Default, "each message is an entry by itself"),
    "max_pending_messages_across_partitions": (50_000, "max_pending_messages holds for each partition"),
    "lazy_start_partitioned_producers": (False, "partitions need no start"),
    "encryption_key": (None, _NO_CRYPTO),
    "crypto_key_reader": (None, _NO_CRYPTO),
    "access_mode": (ProducerAccessMode.Shared, "any Delta writer may append to the inbox"),
}
SEND: Refused = {
    "replication_clusters": (None, "a warehouse is not replicated by messages"),
    "disable_replication": (False, "a warehouse is not replicated by messages"),
}
_READING: Refused = {
    "is_read_compacted": (False, "topics are not compacted"),
    "crypto_key_reader": (None, _NO_CRYPTO),
    "crypto_failure_action": (None, _NO_CRYPTO),
}
CONSUMER: Refused = {
    **_READING,
    "broker_consumer_stats_cache_time_ms": (30_000, _NO_BROKER),
    "properties": (None, "there is no broker that would show them"),
    "replicate_subscription_state_enabled": (False, "a warehouse is not replicated by subscriptions"),
    "max_pending_chunked_message": (10, "a message of any size is one row"),
    "auto_ack_oldest_chunked_message_on_queue_full": (False, "a message of any size is one row"),
    "max_total_receiver_queue_size_across_partitions": (50_000, "receiver_queue_size holds for each topic"),
}
READER: Refused = {
    **_READING,
    "reader_name": (None, "a reader is registered nowhere"),
    "subscription_role_prefix": (None, "a reader has no subscription"),
}
_KINDS: Mapping[str, type | UnionType] = {
    "subscription_name": str,
    "producer_name": str | None,
    "consumer_name": str | None,
    "consumer_type": ConsumerType,
    "schema": Schema,
    "block_if_queue_full": bool,
    "batching_enabled": bool,
    "message_routing_mode": PartitionsRoutingMode,
    "initial_position": InitialPosition,
    "batch_receive_policy": ConsumerBatchReceivePolicy | None,
    "dead_letter_policy": ConsumerDeadLetterPolicy | None,
    "key_shared_policy": ConsumerKeySharedPolicy | None,
    "batch_index_ack_enabled": bool,
    "start_message_id_inclusive": bool,
    "regex_subscription_mode": RegexSubscriptionMode,
    "delayed": bool,
    "message_listener": Callable | None,  # type: ignore[dict-item] # isinstance takes it
    "reader_listener": Callable | None,  # type: ignore[dict-item] # isinstance takes it
    "message_router": Callable | None,  # type: ignore[dict-item] # isinstance takes it
    "consumer_event_listener": object,
}
"""What an option is, where another kind would be found too late. Who reads numbers says what they may be."""
_CALLED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("message_listener", "reader_listener", "message_router"), ("__call__",)),
    "consumer_event_listener": ("became_active", "became_inactive"),
}
"""The methods of an option that are called, in threads that have no event loop."""
NOT_RUN = "not an async def, which the thread that calls it would not run; asyncio.run_coroutine_threadsafe may help"
"""Why a coroutine function is refused."""


def check_kinds(**given: object) -> None:
    """Look at the kinds of values.

    Raises:
        InvalidConfiguration: one is of another kind.
    """
    for name, value in given.items():
        if (kind := _KINDS.get(name)) is not None and not isinstance(value, kind):
            raise InvalidConfiguration(name, value, f"it must be of the type {_name(kind)}")
        if value is not None and name in _CALLED:
            _check_called(name, value)
        if isinstance(value, str):
            try:
                check_text(name, value)
            except BadValue as error:
                raise InvalidConfiguration(name, value, f"it must be {error.allowed}") from error


def _check_called(name: str, value: object) -> None:
    """Look at a function, or at an object with some, that a client calls.

    Raises:
        InvalidConfiguration: one is missing, or an `async def`, which would be called and never run.
    """
    for method in _CALLED[name]:
        called = getattr(value, method, None)
        if not callable(called):
            raise InvalidConfiguration(name, value, f"it must have the method {method}")
        if iscoroutinefunction(called) or iscoroutinefunction(value):
            raise InvalidConfiguration(name, value, NOT_RUN)


def _name(kind: type | UnionType) -> str:
    """The name of a type, as a program knows it."""
    return " or ".join("None" if each is NoneType else each.__name__ for each in get_args(kind) or (kind,))


def refuse(refused: Refused, given: Mapping[str, object], known: Container[str] = ()) -> None:
    """Go through options that were given; those that are known can be had.

    Raises:
        TypeError: the reference has no option of that name either.
        InvalidConfiguration: it has, and the value is not the one that changes nothing, or is of another kind.
    """
    for name, value in given.items():
        if name in known:
            if name in _KINDS:
                check_kinds(**{name: value})
            continue
        if name not in refused:
            message = f"there is no option {name!r}"
            raise TypeError(message)
        neutral, why = refused[name]
        if value != neutral:
            raise InvalidConfiguration(name, value, why)


class _Unsaid:
    """The default of an option that may be left out, as `help` shows it."""

    def __repr__(self) -> str:
        return "..."


_UNSAID = _Unsaid()


def spelled_out(*dictionaries: type) -> Callable[[F], F]:
    """Let `help` and `inspect` show the options of a function by their names, with what each means, not as `**how`.

    Args:
        dictionaries: the typed dictionaries whose fields the options are.
    """
    kinds = {name: kind for each in dictionaries for name, kind in each.__annotations__.items()}
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=_UNSAID, annotation=getattr(kind, "__forward_arg__", kind))
        for name, kind in kinds.items()
    ]
    meanings = [cleandoc(each.__doc__ or "") for each in dictionaries]

    def decorated(function: F) -> F:
        own = signature(function)
        stated = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        whole = Signature([*stated, *options], return_annotation=own.return_annotation)
        text = "\n\n".join([cleandoc(function.__doc__ or ""), *meanings])
        vars(function).update(__signature__=whole)
        function.__doc__ = text
        return function

    return decorated

"""Which of a consumer's topics a message is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.checks import checked_place
from pipeline.client.consuming.core import Core
from pipeline.client.consuming.received import Received
from pipeline.client.exceptions import InvalidMessage
from pipeline.client.message import Message
from pipeline.client.messageid import MessageId
from pipeline.client.subscribing.seeking import Where
from pipeline.storage.arrays import longs
from state.runs import MAX_ENTRY, MAX_LEDGER

Named = Message | MessageId
"""A message, or the name of one."""


def core_of(cores: Sequence[Core], message: Named) -> Core:
    """The core that a message is of.

    Raises:
        InvalidMessage: it is of none, or nobody can tell.
    """
    if not isinstance(message, Message | MessageId):
        raise InvalidMessage("message", message, "a message, or its id")
    if isinstance(message, Received) and message.consumer in cores:
        return message.consumer
    topic = message.topic_name()
    found = [core for core in cores if not topic or core.topic == topic]
    if len(found) != 1:
        raise InvalidMessage("message", str(message), f"one of {','.join(core.topic for core in cores)}")
    return found[0]


def by_core(cores: Sequence[Core], table: pa.Table) -> Iterator[tuple[Core, pa.Table]]:
    """The rows of a table that are of each core, and of the present life of its subscription, when they name one.

    Raises:
        InvalidMessage: a column is missing, or has what no position can be.
    """
    for name in ("topic", "ledger_id", "entry_id")[len(cores) == 1 :]:
        if name not in table.column_names or table.column(name).null_count:
            raise InvalidMessage(name, None, "a column without NULL, as `batch_receive_arrow` gives it")
    for column, most in (("ledger_id", MAX_LEDGER), ("entry_id", MAX_ENTRY)):
        numbers = longs(table, column)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) <= most:
            raise InvalidMessage(column, [int(numbers.min()), int(numbers.max())], f"numbers in 0..{most}")
    for core in cores:
        own = table if len(cores) == 1 else table.filter(pc.equal(table.column("topic"), core.topic))
        if "life" in own.column_names:
            own = own.filter(pc.equal(own.column("life"), core.life))
        yield core, own


def sought(cores: Sequence[Core], where: Where) -> Sequence[Core]:
    """The cores in whose topics a place is.

    Raises:
        InvalidMessage: it is in none, or nobody can tell.
    """
    if isinstance(where, int) or where in (MessageId.earliest, MessageId.latest):
        return cores
    return [core_of(cores, where)]


def counts(core: Core, message: Named) -> bool:
    """Whether a message is of the present life of its subscription; what was received before a seek is not.

    A core that has not joined does not know the life; then a message of another consumer counts, unless it is of a life
    that is over.
    """
    if not isinstance(message, Received) or message.life == core.life:
        return True
    return core.life == 0 and message.consumer is not core and message.life > core.over


def place_of(message: Named) -> tuple[int, int]:
    """Ledger and entry.

    Raises:
        InvalidMessage: there can be no message with them.
    """
    named = message if isinstance(message, Received | MessageId) else message.message_id()
    return checked_place(named, named.position)

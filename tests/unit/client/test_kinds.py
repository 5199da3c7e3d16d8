"""What is of the wrong kind is refused at the call by field, value and what is allowed, not by an error of Python's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.client import everything as delayline
from pipeline.config.errors import BadValue

NOON = datetime(2100, 1, 1, 12, tzinfo=UTC)
CALLS: dict[str, Callable[[Any, str], object]] = {
    "key": lambda client, _: client.cancel("t", key=5),
    "subscription": lambda client, _: client.cancel("t", 5, key="a"),
    "where": lambda client, _: client.cancel("t", where=5),
    "to": lambda client, _: client.reschedule("t", key="a", to="tomorrow"),
    "span": lambda client, _: client.shift("t", key="a", span="2h"),
    "command_id": lambda client, _: client.undo(5),
    "limit of commands": lambda client, _: client.commands("x"),
    "key of trace": lambda client, _: client.trace("t", key=5),
    "limit of trace": lambda client, _: client.trace("t", key="a", limit="x"),
    "position": lambda client, _: client.trace("t", position="3:1"),
    "position of one": lambda client, _: client.trace("t", position=(1,)),
    "subscription of pause": lambda client, _: client.pause("t", 5),
    "topic of pending": lambda _, root: delayline.pending(root, 5),  # type: ignore[arg-type] # as all of these
    "subscription of pending": lambda _, root: delayline.pending(root, "t", 5),  # type: ignore[arg-type]
    "limit of rows": lambda client, _: client.pending_rows(limit="x"),
    "new": lambda _, root: delayline.subscribe(root, "t"),  # type: ignore[arg-type]
    "name": lambda *_: delayline.Subscription("t", 5),  # type: ignore[arg-type]
    "topic of unsubscribe": lambda _, root: delayline.unsubscribe(root, 5, "s"),  # type: ignore[arg-type]
    "partitions": lambda _, root: delayline.create_partitioned_topic(root, "t", "two"),  # type: ignore[arg-type]
    "url": lambda *_: delayline.Client(5),  # type: ignore[arg-type]
    "deliveries": lambda _, root: delayline.acknowledge(root, 5),
    "messages": lambda _, root: delayline.send(root, ["x"]),  # type: ignore[list-item]
    "messages that are one": lambda _, root: delayline.send(root, delayline.OutgoingMessage("t", b"")),  # type: ignore[arg-type]
    "topic": lambda *_: delayline.OutgoingMessage(5, b""),  # type: ignore[arg-type]
    "key of a message": lambda *_: delayline.OutgoingMessage("t", b"", key=5),  # type: ignore[arg-type]
    "properties": lambda *_: delayline.OutgoingMessage("t", b"", properties=[1]),  # type: ignore[arg-type]
    "property without a name": lambda *_: delayline.OutgoingMessage("t", b"", properties={None: "1"}),  # type: ignore[dict-item]
    "deliver_at": lambda *_: delayline.OutgoingMessage("t", b"", deliver_at="x"),  # type: ignore[arg-type]
    "deliver_after_ms": lambda *_: delayline.OutgoingMessage("t", b"", deliver_after_ms="x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_of_the_wrong_kind_names_its_field(client: delayline.Client, root: str, call: str) -> None:
    """`'int' object has no attribute 'encode'` names none."""
    with pytest.raises((BadValue, delayline.ClientError)) as refused:
        CALLS[call](client, root)
    assert str(refused.value).startswith(f"{call.partition(' ')[0]} = ")


def test_who_registers_a_name_anew_learns_what_differs(root: str) -> None:
    """And nothing of what is the same."""
    delayline.subscribe(root, delayline.Subscription("t", "s"))
    with pytest.raises(delayline.DelaylineError, match=r"exists with tick_ms 1000, not 5000; to begin anew"):
        delayline.subscribe(root, delayline.Subscription("t", "s", tick_ms=5_000))
    other = delayline.Subscription("t", "s", policies=delayline.Policies(ack=True))
    with pytest.raises(
        delayline.DelaylineError, match=r"exists with ack unset, not true; change it with: delayline policy set"
    ):
        delayline.subscribe(root, other)

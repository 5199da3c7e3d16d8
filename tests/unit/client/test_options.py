"""What a client refuses, when, and with which reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import Parameter, getmembers, isfunction, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import aio, schema, spark
from pipeline.client import public as delayline
from pipeline.client.client import Client
from pipeline.client.commanding.commands import undo
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.reader import Reader
from pipeline.client.exceptions import InvalidConfiguration, InvalidMessage, InvalidTopicName, InvalidUrl
from pipeline.client.message import MessageId
from pipeline.client.producing.producer import Producer
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.errors import NoWarehouse
from tests.support.producing import inbox, payloads


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"deliver_at": -1}, "deliver_at"),
        ({"deliver_at": 1, "deliver_after": timedelta(1)}, "deliver_after"),
        ({"sequence_id": -1}, "sequence_id"),
        ({"event_timestamp": "soon"}, "event_timestamp"),
        ({"partition_key": 7}, "partition_key"),
        ({"partition_key": "\ud800"}, "partition_key"),
        ({"properties": {"delayline.event_time": "1"}}, "properties"),
        ({"properties": {"a": 1}}, "property a"),
        ({"properties": {None: "1"}}, "properties"),
        ({"properties": {1: "1"}}, "properties"),
        ({"ordering_key": b"k"}, "ordering_key"),
        ({"replaces": 7}, "replaces"),
        ({"replaces": ""}, "replaces"),
        ({"replaces": "a", "partition_key": "b"}, "partition_key"),
    ],
)
def test_a_message_that_cannot_be_is_refused_at_once(
    root: str, client: Client, how: dict[str, Any], field: str
) -> None:
    """Its sender learns it, not a table of rejected rows."""
    with pytest.raises(InvalidMessage) as refused:
        client.create_producer("t").send(b"x", **how)
    assert refused.value.field == field
    assert inbox(root) == []


def test_what_replaces_others_has_their_key(root: str, client: Client) -> None:
    """It may be said twice."""
    producer = client.create_producer("orders")
    producer.send(b"1", replaces="order-1")
    producer.send(b"2", replaces="order-2", partition_key="order-2", properties={"color": "red"})
    rows = [(row["message_key"], dict(row["properties"])) for row in inbox(root)]
    assert rows == [
        ("order-1", {"delayline.replaces": "order-1"}),
        ("order-2", {"color": "red", "delayline.replaces": "order-2"}),
    ]


def test_content_is_what_the_schema_says(root: str, client: Client) -> None:
    """Bytes without one; text and JSON are encoded."""
    with pytest.raises(InvalidMessage):
        client.create_producer("t").send("text")
    client.create_producer("t", schema=schema.StringSchema()).send("größer")
    client.create_producer("t", schema=schema.JsonSchema()).send({"a": [1]})
    assert payloads(root) == ["größer".encode(), b'{"a": [1]}']


def test_options_that_cannot_be_had_are_refused_with_the_reason(client: Client, root: str) -> None:
    """Their defaults are taken, so that a program that spells them out moves over."""
    Client(root, io_threads=1, use_tls=False, authentication=None)
    spelled: dict[str, Any] = {"chunking_enabled": False, "properties": None}
    client.create_producer("t", **spelled)
    wrong: dict[str, Any] = {"encryption_key": "k"}
    for made in (lambda: Client(root, use_tls=True), lambda: client.create_producer("t", **wrong)):
        with pytest.raises(InvalidConfiguration) as refused:
            made()
        assert refused.value.why
    with pytest.raises(InvalidConfiguration):
        client.create_producer("t").send(b"x", replication_clusters=["a"])
    with pytest.raises(InvalidConfiguration):
        client.create_producer("t", max_pending_messages=0)
    unknown: dict[str, Any] = {"colour": "red"}
    with pytest.raises(TypeError):
        client.create_producer("t", **unknown)


class Told:
    """A listener whose methods are coroutine functions."""

    async def __call__(self, *_: object) -> None:
        """Never runs."""

    async def became_active(self, *_: object) -> None:
        """Never runs."""

    def became_inactive(self, *_: object) -> None:
        """Runs."""


async def told(*_: object) -> None:
    """Never runs."""


@pytest.mark.parametrize("called", [told, Told(), partial(told, 1)], ids=["function", "object", "partial"])
def test_what_a_thread_would_not_run_is_refused(root: str, client: Client, called: Any) -> None:  # noqa: ANN401 - no listener
    """Each call made a coroutine that nobody awaited: a listener was given every message, and saw none."""
    calls: dict[str, Callable[[], object]] = {
        "message_listener": lambda: client.subscribe("t", "s", message_listener=called),
        "consumer_event_listener": lambda: client.subscribe("t", "s", consumer_event_listener=called),
        "reader_listener": lambda: client.create_reader("t", MessageId.earliest, reader_listener=called),
        "message_router": lambda: client.create_producer("t", message_router=called),
    }
    if not isinstance(called, Told):
        # To look at any object would take longer than the rest of the call.
        calls["callback"] = lambda: client.create_producer("t").send_async(b"x", called)
    for option, call in calls.items():
        with pytest.raises(InvalidConfiguration) as refused:
            call()
        assert refused.value.option == option
    assert inbox(root) == []
    assert subscriptions(root) == []


@pytest.mark.parametrize("url", ["pulsar://localhost:6650", "", "s3://", "hdfs://name/x", "http://a/b"])
def test_an_address_that_is_no_warehouse_is_refused(url: str) -> None:
    """There is no broker to connect to."""
    with pytest.raises(InvalidUrl):
        Client(url)


def test_a_topic_needs_a_name_and_a_warehouse(client: Client, tmp_path: Path) -> None:
    """Said when the producer is made."""
    for topic in ("", " ", "\ud800"):
        with pytest.raises(InvalidTopicName):
            client.create_producer(topic)
    with pytest.raises(NoWarehouse):
        Client(str(tmp_path / "nowhere")).create_producer("t")


def test_an_option_that_is_not_there_is_refused_by_whatever_takes_options(root: str, client: Client) -> None:
    """A dry run that was misspelt was a cancel."""
    when = datetime.now(UTC)
    places = pa.table({"ledger_id": [0], "entry_id": [0]})
    chosen = SimpleNamespace(select=lambda *_: SimpleNamespace(toArrow=lambda: places))
    calls: list[Callable[..., object]] = [
        partial(client.create_producer, "t"),
        partial(client.create_producer("t").send, b"x"),
        partial(client.create_producer("t").send_async, b"x", None),
        partial(client.subscribe, "t", "s"),
        partial(client.trace, "t", key="k"),
        partial(client.cancel, "t", where="true"),
        partial(client.reschedule, "t", where="true", to=when),
        partial(client.shift, "t", where="true", span=timedelta(1)),
        partial(client.release_now, "t", where="true"),
        partial(client.undo, "one"),
        partial(undo, root, "one"),
        partial(spark.cancel, messages=chosen, root=root, topic="t"),
        partial(spark.release_now, messages=chosen, root=root, topic="t"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="dryrun"):
            call(dryrun=True)


def test_whatever_takes_options_shows_them_by_their_names() -> None:
    """Who asks `help`, or a tool that completes names, reads no `**how`."""
    doors = [Client, Producer, Consumer, Reader, aio.Client, aio.Producer, aio.Consumer, aio.Reader]
    named = {name: getattr(delayline, name) for name in delayline.__all__}
    calls = {name: each for name, each in named.items() if isfunction(each)}
    calls |= {f"spark.{name}": each for name, each in vars(spark).items() if isfunction(each) and name[0] != "_"}
    calls |= {each.__qualname__: each for door in doors for _, each in getmembers(door, isfunction)}
    hidden = {
        name
        for name, each in calls.items()
        if any(one.kind is Parameter.VAR_KEYWORD and one.name == "how" for one in signature(each).parameters.values())
    }
    assert hidden == set()
    shown = signature(Client.cancel).parameters
    assert {"dry_run", "by", "reason", "key", "where", "positions"} < set(shown)
    assert str(shown["by"]) == "by: 'str | None' = ..."
    assert "dry_run: write nothing" in (Client.cancel.__doc__ or "")

"""The command around sinks: what it takes, what it prints, and that it repeats nothing secret."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import copytree

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.errors import BadValue, SinkPlaceGone
from pipeline.delta.deltars import open_table
from pipeline.sinks.loop import SinkLoop
from pipeline.sinks.running import publishing
from pipeline.sinks.topic import Refused
from pipeline.subscriptions.destination import TRUSTED, Destination, check_trusted
from schemas import REFUSED_BY_BROKER, REJECTED_DISPATCH
from tests.support.client import new_warehouse
from tests.support.invoked import run as command
from tests.support.pages import span_of
from tests.support.sinks import ADDRESS, Killed, MemoryBroker, MemoryTopic, delivered, places, run, sink
from tests.unit.sinks.test_running import until

NAMED = ("--topic", "t", "--subscription", "s")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def sink_of(root: str) -> tuple[str | None, int | None]:
    """The address and the begin that are registered."""
    (line,) = subscriptions(root)
    return line.policies.sink, line.policies.sink_after


def test_a_sink_is_named_changed_and_taken_away(root: str) -> None:
    """With the subscription or later."""
    assert command(root, "subscribe", *NAMED, "--sink", ADDRESS).exit_code == 0
    assert sink_of(root) == (ADDRESS, 0)
    assert f"sink: {ADDRESS}" in command(root, "policy", "show", *NAMED).output
    assert command(root, "policy", "set", *NAMED, "--sink-after", "7").exit_code == 0
    assert sink_of(root) == (ADDRESS, 7)
    assert command(root, "policy", "set", *NAMED, "--no-sink").exit_code == 0
    assert sink_of(root) == (None, None)


@pytest.mark.parametrize("words", [["--sink", "kafka://me:hunter2@a:1/out"], ["--no-sink", "--sink", ADDRESS]])
def test_what_cannot_be_followed_is_refused(root: str, words: list[str]) -> None:
    """The registry stays as it was, and a password is not printed."""
    command(root, "subscribe", *NAMED)
    result = command(root, "policy", "set", *NAMED, *words)
    assert result.exit_code != 0
    assert "hunter2" not in result.output
    assert sink_of(root) == (None, None)


def test_sinks_are_listed_with_how_far_they_are(root: str) -> None:
    """And why one stands still, which a process has noted."""
    assert "No sink has begun" in command(root, "sinks").output
    delivered(root, "a", "b")
    loop = sink(root, MemoryBroker().connect)
    waits = r"t/s  published 0  versions behind 1  behind by \d+\.\d s  publishing"
    assert re.search(waits, command(root, "sinks").output)
    run(loop)
    loop.stop()
    assert "t/s  published 2  versions behind 0  behind by 0.0 s  publishing" in command(root, "sinks").output
    (shown,) = json.loads(command(root, "sinks", "--json").output)
    assert (shown["published"], shown["versions_behind"], shown["behind_ms"], shown["error"]) == (2, 0, 0, None)


def test_a_sink_that_stands_still_says_why(root: str) -> None:
    """As its thread notes it."""
    delivered(root, "a")
    loop = sink(root, MemoryBroker(fails=["before"]).connect)
    with pytest.raises(Killed):
        loop.step()
    loop.failed(Killed("the broker is away"))
    assert "stands still: Killed: the broker is away" in command(root, "sinks").output


def test_a_sink_whose_place_is_gone_goes_on_where_the_command_of_the_error_says(root: str) -> None:
    """Whoever gives it looks at the last record in the topic: nothing is published twice, and nothing is left out."""
    assert command(root, "subscribe", *NAMED, "--sink", ADDRESS).exit_code == 0
    broker = MemoryBroker()

    def begun() -> SinkLoop:
        (line,) = subscriptions(root)
        return sink(root, broker.connect, after=line.policies.sink_after)

    delivered(root, "a")
    last = delivered(root, "b")
    run(begun())
    broker.place = None
    delivered(root, "c")
    with pytest.raises(SinkPlaceGone) as refused:
        run(begun())
    assert broker.payloads == [b"a", b"b"]
    _, _, words = str(refused.value).partition("say where it begins with: delayline ")
    assert command(root, *words.replace("VERSION", str(last)).split()).exit_code == 0
    run(begun())
    delivered(root, "d")
    run(begun())
    assert broker.payloads == [b"a", b"b", b"c", b"d"]


def test_a_sink_that_stands_still_on_a_refused_message_goes_on_when_the_command_lets_it(root: str) -> None:
    """The option is given when the fault is there, and not before."""
    assert command(root, "subscribe", *NAMED, "--sink", ADDRESS).exit_code == 0
    broker = MemoryBroker(refuses=[b"b"])

    def begun() -> SinkLoop:
        (line,) = subscriptions(root)
        return sink(root, broker.connect, after=line.policies.sink_after, refused=line.policies.sink_refused)

    delivered(root, *"abc")
    with pytest.raises(Refused):
        run(begun())
    assert broker.payloads == [b"a"]
    assert command(root, *span_of("kafka.md", "policy set --sink-refused").split(), *NAMED).exit_code == 0
    run(begun())
    assert broker.payloads == [b"a", b"c"]
    (row,) = open_table(root, REJECTED_DISPATCH).to_pyarrow_table().to_pylist()
    assert row["reason"] == REFUSED_BY_BROKER


def test_a_sink_whose_server_is_not_listed_goes_on_in_a_process_that_lists_it(root: str) -> None:
    """Nothing was published before, and nothing is left out."""
    broker, variables = MemoryBroker(), {"DELAYLINE_KAFKA_SASL_PASSWORD": "hunter2"}

    def connect(to: Destination, producer: str, group: str) -> MemoryTopic:
        check_trusted(to, variables, ["sasl.password"])
        return broker.connect(to, producer, group)

    delivered(root, *"ab")
    with pytest.raises(BadValue) as refused:
        run(sink(root, connect))
    assert refused.value.allowed.count(TRUSTED)
    assert broker.payloads == []
    variables[TRUSTED] = "127.0.0.1:9092"
    run(sink(root, connect))
    assert broker.payloads == [b"a", b"b"]


def test_a_sink_that_moves_to_another_cluster_goes_on_where_the_option_of_the_page_says(root: str) -> None:
    """The servers of another one know no place: it stands still, and publishes nothing a second time."""
    old, new, there = MemoryBroker(), MemoryBroker(), ADDRESS.replace("127.0.0.1", "localhost")
    assert command(root, "subscribe", *NAMED, "--sink", ADDRESS).exit_code == 0

    def begun(broker: MemoryBroker) -> SinkLoop:
        (line,) = subscriptions(root)
        assert line.policies.sink is not None
        return sink(root, broker.connect, line.policies.sink, line.policies.sink_after)

    last = delivered(root, *"ab")
    run(begun(old))
    assert command(root, "policy", "set", *NAMED, "--sink", there).exit_code == 0
    delivered(root, "c")
    loop = begun(new)
    with pytest.raises(SinkPlaceGone) as stands:
        run(loop)
    loop.failed(stands.value)
    assert "SinkPlaceGone" in command(root, "sinks").output
    option = span_of("kafka.md", "policy set --sink-after")
    assert command(root, *option.split(), str(last), *NAMED).exit_code == 0
    run(begun(new))
    delivered(root, "d")
    run(begun(new))
    assert (old.payloads, new.payloads) == ([b"a", b"b"], [b"c", b"d"])


@pytest.mark.parametrize("keeps", [True, False])
def test_a_copy_whose_sinks_are_taken_away_publishes_nothing_and_the_original_goes_on(
    root: str, tmp_path: Path, *, keeps: bool
) -> None:
    """Both would publish under one name: what the copy delivers would be in the topic, and the original be cut off."""
    broker, copy = MemoryBroker(keeps_place=keeps), str(tmp_path.parent / f"{tmp_path.name}-copy")
    assert command(root, "subscribe", *NAMED, "--sink", ADDRESS).exit_code == 0
    with publishing(root, connect=broker.connect):
        delivered(root, "a")
        until(lambda: broker.payloads == [b"a"])
    copytree(root, copy)
    assert command(copy, *span_of("kafka.md", "policy set --no-sink").split(), *NAMED).exit_code == 0
    connections = broker.connections
    with publishing(copy, connect=broker.connect):
        delivered(copy, "b")
        until(lambda: not places(copy).names())
    assert broker.connections == connections
    with publishing(root, connect=broker.connect):
        delivered(root, "c")
        until(lambda: broker.payloads == [b"a", b"c"])
    assert subscriptions(root)[0].policies.sink == ADDRESS

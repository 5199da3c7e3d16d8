"""Warehouses in a store that speaks S3, as far as no Spark is needed: the commands, the request to stop, the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("moto", reason="the store needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the clock needs requirements/all.lock")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.commands.spark import NoSession
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.exceptions import ConnectError
from pipeline.client.message import MessageId
from pipeline.client.producing import writer as producer_inbox
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.client.tables import partitions
from pipeline.client.tables import topiclog as reader_log
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config import s3
from pipeline.config.errors import NoFileSystem
from pipeline.config.paths import one_spelling
from pipeline.config.routes import NotInDriver
from pipeline.delta.claims import claim
from pipeline.delta.deltars import create, path_of
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance import retention
from pipeline.maintenance.layout import compact
from pipeline.maintenance.rewrite import Expired, Rewriting
from pipeline.service import clock
from pipeline.service.clock import VirtualInstants, given
from pipeline.service.stopfile import StopFile
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to, read_mark
from pipeline.subscriptions.sinkplaces import LogPlace, SinkPlaces, TakenUp
from schemas import INBOX, MESSAGES, SUBSCRIPTIONS
from tests.support.client import message_row, put
from tests.support.consumed import World, drained, names
from tests.support.filesystems import live_through
from tests.support.invoked import invoke
from tests.support.s3 import GOING, PRODUCER, serving

NOBODY = "http://127.0.0.1:1"
NO_CONNECTION = "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Couldn't connect to server"
UNANSWERED = """Kernel error -> Generic S3 error
          \u21b3 Error performing GET http://127.0.0.1:1/bucket/w/inbox/_last in 9.8s, after 10 retries
            \u21b3 10, retry_timeout
             \u21b3 180s  - HTTP error
              \u21b3 error sending request
               \u21b3 client error (Connect)
                \u21b3 tcp connect error
                 \u21b3 Connection refused (os error 111)
"""


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """A store with one bucket; the variables that name it."""
    with serving("bucket", GOING) as variables:
        yield variables


@pytest.fixture(autouse=True)
def user_environment(store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a user who says everything."""
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    s3.files.cache_clear()


def call(*words: str) -> str:
    """What a command prints when all is well."""
    found = invoke(list(words))
    assert found.exit_code == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("s3://bucket/wh", "s3a://bucket/wh"),
        ("s3a://bucket/wh/", "s3a://bucket/wh"),
        ("/", "/"),
        ("some/folder/", "some/folder"),
        ("s3/folder", "s3/folder"),
        ("hdfs://host/wh", "hdfs://host/wh"),
    ],
)
def test_a_warehouse_has_one_spelling(path: str, spelled: str) -> None:
    """Who says s3 and who says s3a mean the same tables."""
    assert one_spelling(path) == spelled


def test_the_commands_without_spark_take_a_bucket_for_a_folder() -> None:
    """The AWS variables are all that a user says beside it."""
    call("init", "--warehouse", "s3://bucket/commands")
    call("subscribe", "--warehouse", "s3a://bucket/commands/", "--topic", "t", "--subscription", "s")
    assert call("send", "--warehouse", "s3a://bucket/commands", "--topic", "t", "hello").startswith("1 sent as ")
    shown = json.loads(call("pending", "--warehouse", "s3://bucket/commands", "--json"))
    assert (shown["in_inbox"], [each["subscription"] for each in shown["subscriptions"]]) == (1, ["s"])
    assert call("receive", "--warehouse", "s3://bucket/commands", "--no-follow") == ""
    assert call("doctor", "--warehouse", "s3://bucket/commands").splitlines()[-1] == "Nothing is wrong."


def test_what_the_line_about_a_store_names_is_set_and_the_command_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is missing, or a bucket that is not there."""
    root = "s3://bucket/named"
    call("init", "--warehouse", root)
    with monkeypatch.context() as missing:
        missing.delenv("AWS_ALLOW_HTTP")
        assert "set AWS_ALLOW_HTTP=true" in invoke(["subscriptions", "--warehouse", root]).stderr
    assert "bucket 'absent' is not there" in invoke(["subscriptions", "--warehouse", "s3://absent/w"]).stderr
    assert call("subscriptions", "--warehouse", root) == "No active subscription.\n"


def test_a_request_to_stop_is_seen_in_the_store() -> None:
    """`run` says how to stop it, and then that has to work."""
    call("init", "--warehouse", "s3://bucket/stopped")
    running = StopFile("s3a://bucket/stopped")
    assert not running.asked
    call("stop", "--warehouse", "s3://bucket/stopped")
    assert running.asked
    assert not StopFile("s3a://bucket/stopped").asked


def test_a_store_that_does_not_answer_asks_nobody_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment without the network must not end a run that would have outlived it."""
    running = StopFile("s3a://bucket/outage")

    def silent(*_: object) -> None:
        raise OSError(NO_CONNECTION)

    monkeypatch.setattr(Files, "text_if_there", silent)
    assert not running.asked


def test_the_store_is_a_file_system_like_any_other() -> None:
    """Stages, maintenance and client ask the same of every one."""
    live_through(Files(), "s3a://bucket/a b%20c")
    live_through(Files(), "s3://bucket/again")


@pytest.mark.parametrize("path", ["hdfs://host/folder", "viewfs:///folder", "dbfs:/folder"])
def test_a_path_that_only_spark_reaches_is_named(path: str) -> None:
    """Nothing is asked of a file system that would need a JVM."""
    assert not Files().reaches(path)
    with pytest.raises(NoFileSystem, match="allowed here"):
        Files().exists(path)


def test_the_virtual_clock_lies_in_the_store() -> None:
    """Its reader is a process without Spark; a replay once wrote it into a local folder named `s3a:`."""
    path = Warehouse("s3a://bucket/replayed").instants("ingest")
    reader = VirtualInstants(path)
    clock.advance(path, 10)
    clock.advance(path, 20)
    clock.advance(path, 5)
    assert given(path) == [10, 20]
    assert reader.after(10) == 20
    assert given(f"{path}s") == []
    create_all("s3a://bucket/replayed")
    assert Deliveries("s3a://bucket/replayed").virtual


def test_a_clock_in_the_store_is_held() -> None:
    """A replay runs its stages in lockstep wherever its tables lie."""
    path = Warehouse("s3a://bucket/held").instants("ingest")
    name, found = clock.hold(path), list[int]()
    clock.advance(path, 10)
    waiting = Thread(target=lambda: found.append(VirtualInstants(path).after(0)))
    waiting.start()
    while not clock.is_held(path, name):
        assert waiting.is_alive()
    clock.release(path)
    waiting.join()
    assert found == [10]


def test_a_text_that_goes_while_it_is_read_is_gone() -> None:
    """The hold of a clock is let go of while its reader looks at it; a replay ended with an internal failure of S3."""
    Files().write(f"s3a://{GOING}/hold", "1")
    assert Files().exists(f"s3a://{GOING}/hold")
    assert Files().text_if_there(f"s3a://{GOING}/hold") is None


def test_producers_at_once_lose_nothing() -> None:
    """delta-rs puts a version only where none is, so each one that was acknowledged is there."""
    create_all("s3a://bucket/producers")
    sent: list[int] = []

    def produce(number: int) -> None:
        sent.extend(send("s3a://bucket/producers", [OutgoingMessage("t", bytes([number]))]) for _ in range(6))

    producers = [Thread(target=produce, args=(number,)) for number in range(3)]
    for each in producers:
        each.start()
    for each in producers:
        each.join()
    assert len(sent) == DeltaTable(path_of("s3a://bucket/producers", INBOX)).to_pyarrow_table().num_rows == 18


@pytest.mark.parametrize(
    ("command", "root", "changed", "line"),
    [
        ("init", "s3://bucket/w", {"AWS_ALLOW_HTTP": None}, "it is not encrypted; set AWS_ALLOW_HTTP=true"),
        ("init", "s3://bucket/w", {"AWS_ACCESS_KEY_ID": "other"}, "refused (InvalidAccessKeyId); check AWS_ACCESS"),
        ("stop", "s3://bucket/w", {"AWS_ACCESS_KEY_ID": "other"}, "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("pending", "s3://bucket/w", {"AWS_ACCESS_KEY_ID": "other"}, "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("init", "s3://bucket/w", {"AWS_ACCESS_KEY_ID": None}, "no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET"),
        ("init", "s3://nobucket/w", {}, "bucket 'nobucket' is not there; make it"),
        ("stop", "s3://nobucket/w", {}, "bucket 'nobucket' is not there; make it"),
        ("receive", "s3://bucket/w", {}, "warehouse = 's3a://bucket/w' has no table 'inbox'"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, command: str, root: str, changed: dict[str, str | None], line: str
) -> None:
    """Instead of `OSError: Generic S3 error`."""
    for name, value in changed.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    found = invoke([command, "--warehouse", root])
    assert found.exit_code == 1
    assert found.stderr.count("\n") == 1
    assert line in found.stderr


@pytest.mark.parametrize(
    ("said", "endpoint", "line"),
    [
        (UNANSWERED, NOBODY, f"AWS_ENDPOINT_URL = '{NOBODY}': no answer; check the address"),
        (NO_CONNECTION, NOBODY, f"AWS_ENDPOINT_URL = '{NOBODY}': no answer; check the address"),
        (UNANSWERED, None, "Amazon (AWS_ENDPOINT_URL is not set): no answer; check the address"),
        (
            "Generic S3 error\n\x1b[31m\u21b3\x1b[0m Something\n  \u21b3 else\n",
            None,
            "Amazon (AWS_ENDPOINT_URL is not set): else",
        ),
        ("Generic S3 error <Code>SlowDown</Code>", None, "Amazon (AWS_ENDPOINT_URL is not set): SlowDown"),
        ("No space left on device", NOBODY, None),
    ],
)
def test_what_a_store_said_over_many_lines_becomes_one(said: str, endpoint: str | None, line: str | None) -> None:
    """delta-rs and pyarrow ask again for seconds before they give up; so their words are given here."""
    assert s3.trouble(said, {} if endpoint is None else {"AWS_ENDPOINT_URL": endpoint}) == line


def test_a_jar_that_spark_did_not_find_is_named(tmp_path: Path) -> None:
    """Without a way to Maven Central the JVM ends before Python hears a reason."""
    log = tmp_path / "log"
    log.write_text(":: UNRESOLVED\nunresolved dependency: org.apache.hadoop#hadoop-aws;3.5.0: not found\n")
    found = str(NoSession(log, RuntimeError()))
    assert found.startswith(
        "Spark did not start (no way to the JAR org.apache.hadoop#hadoop-aws;3.5.0 at Maven Central"
    )
    assert "(RuntimeError)" in str(NoSession(tmp_path / "none", RuntimeError()))


def test_delta_itself_commits_nothing_in_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its OPTIMIZE and DELETE would replace what a producer has just committed: such a table is left as it is."""

    def unknown(*_: object) -> None:
        raise NotInDriver

    monkeypatch.setattr(Rewriting, "of", unknown)
    monkeypatch.setattr(retention, "unread", lambda *_: SimpleNamespace(batches=()))
    nobody: Any = None
    warehouse = Warehouse("s3a://bucket/unknown", nobody)
    assert compact(warehouse, INBOX) == (0, 0)
    assert retention.delete(warehouse, Expired(MESSAGES, "true")) == 0


def test_an_input_of_a_replay_may_lie_in_the_store() -> None:
    """It was called no Delta table."""
    from jobs.commands.replay import BadInput, form_of  # noqa: PLC0415 - loads Spark's classes

    create_all("s3a://bucket/input")
    assert form_of("s3a://bucket/input/inbox") == "delta"
    with pytest.raises(BadInput) as refused:
        form_of("s3a://bucket/nothing")
    assert refused.value.value == "s3a://bucket/nothing"


def test_a_consumer_works_in_a_store_and_goes_on_after_it_was_closed() -> None:
    """What it acknowledged is settled, the rest comes to the next one."""
    world = World("s3a://bucket/consumed")
    world.dispatch.deliver((1, 0), (1, 1))
    consumer = world.joined()
    consumer.acknowledge(drained(consumer)[0])
    consumer.close()
    world.dispatch.deliver((1, 2))
    assert names(drained(world.joined())) == [(1, 1), (1, 2)]


def test_a_client_sends_and_reads_in_a_store() -> None:
    """Names are known to the next one, and partitions are found."""
    create_all("s3a://bucket/client")
    with Client("s3://bucket/client") as client:
        producer = client.create_producer("t", "shop")
        for number in range(3):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        put("s3a://bucket/client", MESSAGES, message_row(1, 0, 1), message_row(1, 1, 1))
        reader = client.create_reader("t", MessageId.of("t", 1, 0))
        assert reader.read_next(0).message_id() == MessageId.of("t", 1, 1)
    with Client("s3a://bucket/client/") as client:
        assert client.create_producer("t", "shop").last_sequence_id() == 2
        create_partitioned_topic("s3a://bucket/client", "u", 2)
        assert client.get_topic_partitions("u") == ["u-partition-0", "u-partition-1"]


def test_a_producer_has_the_rights_that_the_page_gives_it_and_needs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command, a client and a writer of Delta. It deletes nothing, and reads no payload beside the inbox."""
    root = "s3a://bucket/rights"
    for table in (INBOX, MESSAGES, SUBSCRIPTIONS):
        create(root, table, {})
    call("subscribe", "--warehouse", root, "--topic", "t", "--subscription", "s")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", PRODUCER)
    s3.files.cache_clear()
    assert call("send", "--warehouse", root, "--topic", "t", "hello").startswith("1 sent as ")
    with Client(root) as client:
        client.create_producer("t", producer_name="me").send(b"hello again")
    rows = pa.table({"topic": ["t"], "payload": [b"x"]})
    write_deltalake(path_of(root, INBOX), rows, mode="append", schema_mode="merge")
    assert DeltaTable(path_of(root, INBOX)).to_pyarrow_table().num_rows == 3
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        Files().delete(f"{path_of(root, INBOX)}/_delta_log/00000000000000000000.json")
    with pytest.raises(OSError, match="privileges"):
        DeltaTable(path_of(root, MESSAGES))


def test_a_client_of_a_store_that_is_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not take it for an empty one."""

    def away(*_: Any) -> None:  # noqa: ANN401 - looks at nothing
        raise OSError(NO_CONNECTION)

    client = Client("s3://bucket/client")
    for module in (producer_inbox, partitions, reader_log):
        monkeypatch.setattr(module, "open_table", away)
    for call in (
        lambda: client.create_producer("t"),
        lambda: client.subscribe("t", "s"),
        lambda: client.create_reader("t", MessageId.earliest),
        lambda: client.get_topic_partitions("t"),
    ):
        with pytest.raises(ConnectError) as refused:
            call()
        assert "NETWORK_CONNECTION" in str(refused.value)


def test_of_two_that_claim_a_folder_of_a_store_one_has_it() -> None:
    """No lock holds processes apart there. Both would publish for a sink, or note what the other one did not."""
    files, folder = Files(), "s3a://bucket/claims/1"
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: claim(files, folder), range(4))) == [False, False, False, True]
    places = SinkPlaces(files, "s3a://bucket/sinks")
    first, second = places.begin("s"), places.begin("s")
    assert (first.is_over, second.is_over) == (True, False)
    second.take_up(TakenUp(2, 3, 0, LogPlace(2, 0)))
    first.take_up(TakenUp(1, 2, 0, LogPlace(1, 0)))
    third = places.begin("s")
    assert third.taken_up() == TakenUp(2, 3, 0, LogPlace(2, 0))
    places.drop("s")
    assert files.names(places.folder) == []


def test_a_mark_in_a_store_only_rises() -> None:
    """Nothing holds two rounds of maintenance apart there."""
    files, root = Files(), "s3a://bucket/marks"
    marks = [SettledMark(each, each, each) for each in (2_000, 10_000, 9_000)]
    assert [raise_to(files, root, mark) for mark in marks] == [marks[0], marks[1], marks[1]]
    assert read_mark(files, root) == marks[1]

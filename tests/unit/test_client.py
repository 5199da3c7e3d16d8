"""The client: send, subscribe, receive and count without Spark, on tables of the contract."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipeline.client import delta
from pipeline.client.create import create_all
from pipeline.client.deliveries import Deliveries
from pipeline.client.delta import append, arrow_schema, open_table, path_of, rows_of
from pipeline.client.errors import AlreadySubscribed, BadValue, NoWarehouse, StillConflicting, VersionGone
from pipeline.client.inbox import Message, send
from pipeline.client.pending import Backlog, pending
from pipeline.client.registry import Subscription, subscribe, subscriptions
from pipeline.errors import BadSetting
from schemas import DELIVERIES, INBOX, LEFT, MESSAGES, REJECTED_INGEST, SEGMENTS, SUBSCRIPTIONS, TABLES, Table
from state import OutOfRange

MINUTE = 60_000


def at(ms: int) -> datetime:
    """An instant in ms as a timestamp."""
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    create_all(str(tmp_path))
    return str(tmp_path)


def message_row(ledger: int, entry: int, due: int, topic: str = "t", published: int = 0) -> dict[str, Any]:
    """A row of `messages`; times in ms."""
    times = {"publish_time": at(published), "deliver_at": at(due), "due_time": at(max(due, published))}
    return {"topic": topic, "ledger_id": ledger, "entry_id": entry, "parked": False, "batch_id": 0, **times}


def delivery_row(row: dict[str, Any], sequence: int = 1, subscription: str = "s", count: int = 0) -> dict[str, Any]:
    """The row of `deliveries` for a row of `messages`: its bucket is later than its due time."""
    kept = {name: row[name] for name in ("topic", "ledger_id", "entry_id", "publish_time", "deliver_at")}
    bucket = at(int(row["due_time"].timestamp() * 1000) + 24)
    released = {"due_time": bucket, "released_at": bucket, "redelivery_count": count, "cause": "due", "life": 1}
    name = f"{row['ledger_id']}.{row['entry_id']}".encode()
    return {**kept, **released, "subscription": subscription, "batch_id": 0, "sequence": sequence, "payload": name}


def put(root: str, table: Table, *rows: dict[str, Any]) -> None:
    """Append rows in one commit."""
    append(root, table, rows_of(table, list(rows)))


def noticed(root: str, name: str, first_ledger: int, marker: int = 1, topic: str = "t") -> None:
    """The marker row by which ingest notices a subscription."""
    listener = {
        "subscriptions": [{"name": name, "life": 0, "tick_ms": 0}],
        "first_ledger": first_ledger,
        "marker": marker,
    }
    put(root, SEGMENTS, {"topic": topic, "count": 0, "kind": "marker", "batch_id": 0, **listener})


def backlog(root: str, name: str = "s") -> Backlog:
    """What is pending for a subscription."""
    return next(each for each in pending(root).backlogs if each.subscription == name)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_made_without_spark_has_the_schema_of_its_contract(root: str, table: Table) -> None:
    """Spark reads and writes these tables: names, types and nullability must be what `schemas` says."""
    made = json.loads(DeltaTable(path_of(root, table)).schema().to_json())
    assert made == json.loads(table.schema.json())
    fields = [(field.name, field.nullable) for field in arrow_schema(table)]
    assert fields == [(field.name, field.nullable) for field in table.schema.fields]


def test_no_table_asks_for_a_protocol_that_plain_writers_lack(root: str) -> None:
    """Producers append to the inbox with whatever they have."""
    protocols = {(p.min_reader_version, p.min_writer_version) for p in (open_table(root, t).protocol() for t in TABLES)}
    assert protocols == {(1, 2)}


def test_the_span_of_a_segment_is_kept_in_the_table(tmp_path: Path) -> None:
    """The stages read it there; making the warehouse again does not change it."""
    create_all(str(tmp_path), segment_ms=7_000)
    create_all(str(tmp_path))
    found = {table.name: open_table(str(tmp_path), table).metadata().configuration for table in TABLES}
    assert found["segments"]["delayline.segmentMs"] == "7000"
    assert "delayline.segmentMs" not in found["inbox"]
    short = {name for name, each in found.items() if each["delta.logRetentionDuration"] != "interval 365 days"}
    assert short == {"deliveries", "publications"}, "no stage follows these; the logs of the others must be there"


@pytest.mark.parametrize("span", [999, 86_400_001])
def test_a_span_out_of_range_makes_nothing(tmp_path: Path, span: int) -> None:
    """A wrong span would stay for the life of the warehouse."""
    with pytest.raises(BadSetting) as refused:
        create_all(str(tmp_path), segment_ms=span)
    assert (refused.value.field, refused.value.value) == ("segment_ms", span)
    assert list(tmp_path.iterdir()) == []


def test_a_sent_message_is_a_row_of_the_inbox(root: str) -> None:
    """Every field arrives as it was given, to the microsecond."""
    when = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    assert send(root, [Message("t", b"\x00\xff", when, "k", {"a": "b"}, deliver_at=when)]) == 1
    assert send(root, [Message("t", "ü".encode(), deliver_after_ms=5)]) == 1
    rows = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
    first, second = sorted(rows, key=lambda row: row["payload"])
    assert first == {
        "topic": "t", "message_key": "k", "properties": [("a", "b")], "publish_time": when, "deliver_at": when,
        "deliver_after_ms": None, "payload": b"\x00\xff",
    }  # fmt: skip
    assert (second["deliver_after_ms"], second["properties"], second["publish_time"]) == (5, None, None)


def test_sending_nothing_commits_nothing(root: str) -> None:
    """An empty input is no reason for a version."""
    assert send(root, []) == 0
    assert open_table(root, INBOX).version() == 0


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("topic", {"topic": " "}),
        ("deliver_at", {"deliver_at": datetime(2026, 1, 1)}),  # noqa: DTZ001 - the mistake under test
        ("deliver_after_ms", {"deliver_after_ms": -1}),
        ("deliver_after_ms", {"deliver_after_ms": 1, "deliver_at": datetime(2026, 1, 1, tzinfo=UTC)}),
    ],
)
def test_what_ingest_would_reject_is_refused_at_the_sender(field: str, given: dict[str, Any]) -> None:
    """The sender learns it at once, not from a table later."""
    with pytest.raises(BadValue) as refused:
        Message(**{"topic": "t", "payload": b"", **given})
    assert refused.value.field == field


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    """A mistyped folder is the first mistake anybody makes."""
    with pytest.raises(NoWarehouse) as refused:
        send(str(tmp_path), [Message("t", b"")])
    assert (refused.value.root, refused.value.table) == (str(tmp_path), "inbox")


def test_a_lost_race_is_run_again_with_growing_pauses(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other producers append too; a conflict is no failure."""
    real, lost, pauses = write_deltalake, iter([True, True, False]), list[float]()

    def write(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passes through
        if next(lost):
            raise CommitFailedError("somebody else was faster")
        real(*args, **kwargs)

    monkeypatch.setattr(delta, "write_deltalake", write)
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    assert append(root, INBOX, rows_of(INBOX, [{"topic": "t"}]), pauses.append) == 1
    assert pauses == [0.05, 0.1]


def test_a_race_that_is_always_lost_ends_with_an_error(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that cannot write has to say so, and how often it tried."""

    def write(*_: Any, **__: Any) -> None:  # noqa: ANN401 - never looks
        raise CommitFailedError("somebody else was faster")

    monkeypatch.setattr(delta, "write_deltalake", write)
    pauses: list[float] = []
    with pytest.raises(StillConflicting) as refused:
        append(root, INBOX, rows_of(INBOX, [{"topic": "t"}]), pauses.append)
    assert (refused.value.table, refused.value.attempts, len(pauses)) == ("inbox", delta.ATTEMPTS, delta.ATTEMPTS)


def test_a_subscription_is_registered_once(root: str) -> None:
    """Saying it again changes nothing; saying it differently is refused."""
    new = Subscription("t", "s", "key_shared", "earliest", 60_000)
    assert subscribe(root, new)
    assert not subscribe(root, new)
    with pytest.raises(AlreadySubscribed) as refused:
        subscribe(root, Subscription("t", "s", tick_ms=1))
    assert (refused.value.topic, refused.value.subscription) == ("t", "s")
    assert subscribe(root, Subscription("t2", "s"))
    assert subscriptions(root) == [new, Subscription("t2", "s")]


@pytest.mark.parametrize(
    ("field", "given"), [("name", {"name": ""}), ("type", {"type": "fast"}), ("start", {"start": "middle"})]
)
def test_a_subscription_that_no_stage_knows_is_refused(field: str, given: dict[str, Any]) -> None:
    """The registry is read by every stage; a wrong line would stop them."""
    with pytest.raises(BadValue) as refused:
        Subscription(**{"topic": "t", "name": "s", **given})
    assert refused.value.field == field
    with pytest.raises(OutOfRange):
        Subscription("t", "s", tick_ms=0)


def test_deliveries_come_commit_by_commit_each_in_its_sequence(root: str) -> None:
    """Order is what consumers were promised; file and row-group order must not show."""
    rows = [message_row(1, entry, 1_000) for entry in range(4)]
    put(root, DELIVERIES, delivery_row(rows[3], 1), delivery_row(rows[0], 2))
    reader = Deliveries(root)
    assert [each.payload for each in reader.take()] == [b"1.3", b"1.0"]
    assert list(reader.take()) == []
    put(root, DELIVERIES, delivery_row(rows[1], 1))
    put(root, DELIVERIES, delivery_row(rows[2], 1))
    assert [(each.payload, each.order) for each in reader.take()] == [(b"1.1", (2, 1)), (b"1.2", (3, 1))]


def test_files_of_one_commit_come_in_the_order_of_their_sequences(root: str) -> None:
    """A large batch is written by several tasks, and the log lists their files in any order."""
    rows = [delivery_row(message_row(1, entry, 1_000), entry + 1) for entry in range(2_000)]
    table = DeltaTable(path_of(root, DELIVERIES))
    batches = [rows_of(DELIVERIES, rows[1_000:]), rows_of(DELIVERIES, rows[:1_000])]
    actions = []
    for number, batch in enumerate(batches):
        path = Path(path_of(root, DELIVERIES), f"part-{number}.parquet")
        pq.write_table(batch, path)
        first = min(batch.column("sequence").to_pylist())
        statistics = json.dumps({"numRecords": 1_000, "minValues": {"batch_id": 0, "sequence": first}})
        actions.append({"path": path.name, "size": path.stat().st_size, "dataChange": True, "stats": statistics})
    log = Path(path_of(root, DELIVERIES), "_delta_log", f"{table.version() + 1:020d}.json")
    adds = [{"add": {**action, "partitionValues": {}, "modificationTime": 0}} for action in actions]
    log.write_text("\n".join(json.dumps(line) for line in [{"commitInfo": {"timestamp": 5_000}}, *adds]))
    taken = list(Deliveries(root).take())
    assert [each.order[1] for each in taken] == list(range(1, 2_001))
    assert {each.late_s for each in taken} == {4.0}


def test_only_what_was_asked_for_is_received(root: str) -> None:
    """Topic and subscription narrow the view, and file statistics spare the rest."""
    one, two = message_row(1, 1, 1_000), message_row(1, 2, 1_000, topic="u")
    put(root, DELIVERIES, delivery_row(one, 1), delivery_row(two, 2), delivery_row(one, 3, subscription="z"))
    assert [each.order[1] for each in Deliveries(root).take(topic="t")] == [1, 3]
    assert [each.order[1] for each in Deliveries(root).take(topic="t", subscription="z")] == [3]
    assert list(Deliveries(root).take(topic="a")) == []


def test_a_reader_from_the_latest_sees_only_what_comes(root: str) -> None:
    """Somebody who watches is not interested in last year."""
    row = message_row(1, 1, 1_000)
    put(root, DELIVERIES, delivery_row(row, 1))
    reader = Deliveries(root, earliest=False)
    assert list(reader.take()) == []
    put(root, DELIVERIES, delivery_row(row, 2))
    assert [each.order for each in reader.take()] == [(2, 1)]


def test_rewritten_files_are_not_delivered_again(root: str) -> None:
    """Compaction moves rows to other files; no consumer may see them twice."""
    row = message_row(1, 1, 1_000)
    put(root, DELIVERIES, delivery_row(row, 1))
    put(root, DELIVERIES, delivery_row(row, 2))
    reader = Deliveries(root)
    open_table(root, DELIVERIES).optimize.compact()
    assert open_table(root, DELIVERIES).version() == 3
    assert [each.order for each in reader.take()] == [(1, 1), (2, 1)]


def test_a_vacuumed_version_is_named(root: str) -> None:
    """What compaction and vacuum took away cannot be followed; silence would look like nothing delivered."""
    put(root, DELIVERIES, delivery_row(message_row(1, 1, 1_000), 1))
    for file in Path(path_of(root, DELIVERIES)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(VersionGone) as refused:
        list(Deliveries(root).take())
    assert (refused.value.table, refused.value.version) == ("deliveries", 1)


def test_lateness_counts_from_the_later_of_delivery_and_publication(root: str) -> None:
    """A message sent for a time in the past is due when it is published, not in the past."""
    rows = [
        delivery_row(message_row(1, 1, 5_000, published=1_000), 1),
        delivery_row(message_row(1, 2, 1_000, published=5_000), 2),
        {**delivery_row(message_row(1, 3, 0, published=5_000), 3), "deliver_at": None},
    ]
    put(root, DELIVERIES, *rows)
    late = [(each.visible_at - at(5_000)).total_seconds() - each.late_s for each in Deliveries(root).take()]
    assert late == [0, 0, 0]


def test_in_a_replay_lateness_is_measured_on_the_virtual_clock(root: str) -> None:
    """The wall clock of the replay says nothing about a message of 2013."""
    put(root, DELIVERIES, delivery_row(message_row(1, 1, 1_000), 1))
    Path(root, "_clock").mkdir()
    (only,) = Deliveries(root).take()
    assert (only.visible_at, only.late_s) == (at(1_024), 0.024)


def test_pending_is_what_was_accepted_less_what_was_delivered(root: str) -> None:
    """Count, next due time and minutes come from the two tables alone."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    rows = [message_row(1, 0, 1_000), message_row(1, 1, 61_500), message_row(2, 0, 61_400), message_row(2, 1, 200_000)]
    put(root, MESSAGES, *rows)
    assert backlog(root) == Backlog("t", "s", 4, 1_000, {0: 1, MINUTE: 2, 3 * MINUTE: 1})
    put(root, DELIVERIES, delivery_row(rows[0]), delivery_row(rows[2]))
    assert backlog(root) == Backlog("t", "s", 2, 61_500, {MINUTE: 1, 3 * MINUTE: 1})
    put(root, DELIVERIES, delivery_row(rows[1]), delivery_row(rows[3]))
    assert backlog(root) == Backlog("t", "s", 0, None, {})


def test_a_due_time_is_counted_as_ingest_computes_it(root: str) -> None:
    """Microseconds round up, the past is due at publication, and before 1970 is 1970: both sides must agree."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    micro = message_row(1, 0, 119_999)
    micro = {**micro, "deliver_at": micro["deliver_at"].replace(microsecond=999_001), "due_time": at(120_000)}
    past = message_row(1, 1, 1_000, published=500_000)
    none = {**message_row(1, 2, 0, published=500_000), "deliver_at": None}
    ancient = {**message_row(1, 3, -70 * 365 * 86_400_000, published=-60_001), "due_time": at(0)}
    put(root, MESSAGES, micro, past, none, ancient)
    assert backlog(root).minutes == {0: 1, 2 * MINUTE: 1, 8 * MINUTE: 2}
    put(root, DELIVERIES, *(delivery_row(row) for row in (micro, past, none, ancient)))
    assert backlog(root) == Backlog("t", "s", 0, None, {})


def test_each_subscription_counts_from_its_first_ledger(root: str) -> None:
    """A late subscriber is not owed what came before it; one not noticed yet is owed all or nothing."""
    for name, start in (("a", "earliest"), ("b", "latest"), ("c", "latest"), ("d", "earliest")):
        subscribe(root, Subscription("t", name, start=start))
    noticed(root, "a", 0)
    noticed(root, "b", 2, marker=2)
    put(root, MESSAGES, message_row(1, 0, 1_000), message_row(2, 0, 1_000), message_row(2, 1, 1_000, topic="other"))
    assert {name: backlog(root, name).count for name in "abcd"} == {"a": 2, "b": 1, "c": 0, "d": 2}


def test_a_subscription_that_came_back_is_owed_what_its_present_life_is(root: str) -> None:
    """What an earlier life got is not taken off; between leaving and being noticed again it is like a new one."""
    for name, start in (("a", "earliest"), ("b", "latest"), ("c", "earliest"), ("d", "latest")):
        subscribe(root, Subscription("t", name, start=start))
        noticed(root, name, 0)
        noticed(root, name, LEFT, marker=2)
    noticed(root, "b", 2, marker=2)
    noticed(root, "a", 0, marker=3)
    rows = [message_row(1, 0, 1_000), message_row(2, 0, 1_000)]
    put(root, MESSAGES, *rows)
    put(root, DELIVERIES, *(delivery_row(rows[0], subscription=name) for name in "abcd"))
    assert {name: backlog(root, name).count for name in "abcd"} == {"a": 2, "b": 1, "c": 2, "d": 0}
    put(root, DELIVERIES, {**delivery_row(rows[1], subscription="a"), "life": 2})
    assert backlog(root, "a").count == 1


def test_lines_of_the_registry_that_nobody_would_write_by_command_do_no_harm(root: str) -> None:
    """The registry is a table that anybody may append to: one odd line must not blind the commands."""
    subscribe(root, Subscription("t", "s"))
    odd = {"topic": "t", "subscription": "odd", "type": "?", "start": "?", "tick_ms": 1, "active": True}
    put(root, SUBSCRIPTIONS, odd, {**odd, "subscription": "never", "tick_ms": 0}, {**odd, "subscription": " "})
    assert [(each.name, each.type, each.start) for each in subscriptions(root)] == [
        ("odd", "shared", "latest"),
        ("s", "shared", "latest"),
    ]
    assert [each.subscription for each in pending(root).backlogs] == ["odd", "s"]


def test_redeliveries_and_foreign_deliveries_do_not_count(root: str) -> None:
    """A message delivered a second time was delivered once before."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    row = message_row(1, 0, 1_000)
    put(root, MESSAGES, row, message_row(1, 1, 1_000))
    put(root, DELIVERIES, delivery_row(row), delivery_row(row, count=1), delivery_row(row, subscription="gone"))
    assert backlog(root).count == 1


def test_names_with_quotes_are_counted_as_any_other(root: str) -> None:
    """A name is data, also where it stands in a query."""
    subscribe(root, Subscription("it's", "o'clock"))
    noticed(root, "o'clock", 0, topic="it's")
    put(root, MESSAGES, message_row(1, 0, 1_000, topic="it's"))
    assert [each.count for each in pending(root).backlogs] == [1]
    assert [each.count for each in pending(root, "it's", "o'clock").backlogs] == [1]
    assert pending(root, "t").backlogs == ()


def test_the_inbox_counts_what_ingest_has_not_taken(root: str) -> None:
    """Sent is accepted plus rejected plus this; refused lines of the registry were never sent."""
    send(root, [Message("t", b"")] * 5)
    put(root, MESSAGES, message_row(1, 0, 1_000), message_row(1, 1, 1_000))
    for reason in ("missing_topic", "tick_changed", "tick_out_of_range"):
        put(root, REJECTED_INGEST, {"reason": reason, "rejected_at": at(0), "batch_id": 0})
    found = pending(root)
    assert found.in_inbox == 2
    assert found.versions == {"deliveries": 0, "messages": 1}

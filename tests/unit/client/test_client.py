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

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.errors import (
    AlreadySubscribed,
    BadSetting,
    BadValue,
    ColumnGone,
    NoWarehouse,
    StillConflicting,
    VersionGone,
)
from pipeline.delta import deltars
from pipeline.delta.deltars import append, arrow_schema, open_table, path_of, rows_of
from pipeline.delta.properties import rate_of, segment_ms_of
from schemas import DELIVERIES, INBOX, SEGMENTS, TABLES, Table
from state import OutOfRange
from tests.support.client import at, delivery_row, message_row, put


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    create_all(str(tmp_path))
    return str(tmp_path)


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
    assert "delayline.rate" not in found["inbox"]
    kept = {each["delta.logRetentionDuration"] for each in found.values()}
    assert kept == {"interval 365 days"}, "maintenance cuts the logs: it knows who follows them"


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ({}, {"delayline.rate": "1000", "delayline.segmentMs": "300000"}),
        ({"rate": 25_000}, {"delayline.rate": "25000", "delayline.segmentMs": "10000"}),
        ({"rate": 25_000, "segment_ms": 7_000}, {"delayline.rate": "25000", "delayline.segmentMs": "7000"}),
    ],
)
def test_the_rate_is_kept_in_the_table_and_gives_the_span(
    tmp_path: Path, options: dict[str, int], properties: dict[str, str]
) -> None:
    """It is stated once, where every start finds it; a span that is stated wins."""
    create_all(str(tmp_path), **options)
    held = open_table(str(tmp_path), SEGMENTS).metadata().configuration
    assert {key: value for key, value in held.items() if key.startswith("delayline.")} == properties
    assert properties.items() <= held.items()
    assert (rate_of(held), segment_ms_of(held)) == tuple(map(int, properties.values()))


def test_a_warehouse_from_before_there_was_a_rate_has_the_default() -> None:
    """It goes on as it was; a table that is not ours has no span to guess."""
    assert rate_of({"delayline.segmentMs": "60000"}) == 1_000
    with pytest.raises(BadSetting) as refused:
        segment_ms_of({})
    assert refused.value.field == "delayline.segmentMs"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("10000001", 10_000_001), *((each, each) for each in ("fast", "-5", "", "9" * 5_000))],
)
def test_a_rate_that_somebody_broke_is_refused(text: str, value: object) -> None:
    """Any engine can change a property; what cannot be is named, with its range."""
    with pytest.raises(BadSetting) as refused:
        rate_of({"delayline.rate": text})
    found = (refused.value.field, refused.value.value, refused.value.allowed)
    assert found == ("delayline.rate", value, "1..10000000")


@pytest.mark.parametrize("rate", [0, 10_000_001])
def test_a_rate_out_of_range_makes_nothing(tmp_path: Path, rate: int) -> None:
    """It would stay for the life of the warehouse."""
    with pytest.raises(BadSetting) as refused:
        create_all(str(tmp_path), rate=rate)
    assert (refused.value.field, refused.value.value, refused.value.allowed) == ("rate", rate, "1..10000000")
    assert list(tmp_path.iterdir()) == []


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
    assert send(root, [OutgoingMessage("t", b"\x00\xff", when, "k", {"a": "b"}, deliver_at=when)]) == 1
    assert send(root, [OutgoingMessage("t", "ü".encode(), deliver_after_ms=5)]) == 1
    rows = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
    first, second = sorted(rows, key=lambda row: row["payload"])
    assert first == {
        "topic": "t", "message_key": "k", "properties": [("a", "b")], "publish_time": when, "deliver_at": when,
        "deliver_after_ms": None, "payload": b"\x00\xff", "producer_name": None, "sequence_id": None,
    }  # fmt: skip
    assert (second["deliver_after_ms"], second["properties"]) == (5, None)


def test_a_column_that_somebody_added_is_no_hindrance(root: str) -> None:
    """Rows are written by name; what nobody sent is NULL. A column of ours that is gone is named."""
    inbox, places = f"{root}/{INBOX.name}", (0, 3)
    for place in places:
        held = open_table(root, INBOX).schema().to_arrow()
        more = [pa.field(f"more{place}", pa.int64())]
        added = pa.schema([*pa.schema(held), *more]).empty_table()
        write_deltalake(inbox, added, mode="append", schema_mode="merge")
        assert send(root, [OutgoingMessage("t", b"x", key=str(place))]) == 1
    rows = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
    assert sorted((row["message_key"], row["more0"], row["payload"]) for row in rows) == [
        ("0", None, b"x"),
        ("3", None, b"x"),
    ]
    less = pa.table(open_table(root, INBOX).to_pyarrow_table()).drop_columns(["message_key"])
    write_deltalake(inbox, less, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ColumnGone) as refused:
        send(root, [OutgoingMessage("t", b"x")])
    assert (refused.value.table, refused.value.column) == ("inbox", "message_key")


def test_rows_keep_their_order_however_many_pieces_they_come_in(root: str) -> None:
    """Events of consumers, and messages with one due time, count in the order in which they were said."""
    pieces = [rows_of(INBOX, [{"topic": "t", "payload": str(number).encode()}]) for number in range(20)]
    append(root, INBOX, pa.concat_tables(pieces))
    (path,) = Path(path_of(root, INBOX)).glob("*.parquet")
    assert [int(payload) for payload in pq.read_table(path).column("payload").to_pylist()] == list(range(20))


def test_sending_nothing_commits_nothing(root: str) -> None:
    """An empty input is no reason for a version."""
    assert send(root, []) == 0
    assert open_table(root, INBOX).version() == 0


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("topic", {"topic": " "}),
        ("topic", {"topic": "t\udcff"}),
        ("key", {"key": "\ud800"}),
        ("property", {"properties": {"\udcff": None}}),
        ("property p", {"properties": {"p": "\udcff"}}),
        ("deliver_at", {"deliver_at": datetime(2026, 1, 1)}),  # noqa: DTZ001 - the mistake under test
        ("deliver_after_ms", {"deliver_after_ms": -1}),
        ("deliver_after_ms", {"deliver_after_ms": 1, "deliver_at": datetime(2026, 1, 1, tzinfo=UTC)}),
    ],
)
def test_what_ingest_would_reject_is_refused_at_the_sender(field: str, given: dict[str, Any]) -> None:
    """The sender learns it at once, not from a table later."""
    with pytest.raises(BadValue) as refused:
        OutgoingMessage(**{"topic": "t", "payload": b"", **given})
    assert refused.value.field == field


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    """A mistyped folder is the first mistake anybody makes."""
    with pytest.raises(NoWarehouse) as refused:
        send(str(tmp_path), [OutgoingMessage("t", b"")])
    assert (refused.value.root, refused.value.table) == (str(tmp_path), "inbox")


def test_a_lost_race_is_run_again_with_growing_pauses(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other producers append too; a conflict is no failure."""
    real, lost, pauses = write_deltalake, iter([True, True, False]), list[float]()

    def write(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passes through
        if next(lost):
            raise CommitFailedError("somebody else was faster")
        real(*args, **kwargs)

    monkeypatch.setattr(deltars, "write_deltalake", write)
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    assert append(root, INBOX, rows_of(INBOX, [{"topic": "t"}]), pauses.append) == 1
    assert pauses == [0.05, 0.1]


def test_a_race_that_is_always_lost_ends_with_an_error(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that cannot write has to say so, and how often it tried."""

    def write(*_: Any, **__: Any) -> None:  # noqa: ANN401 - never looks
        raise CommitFailedError("somebody else was faster")

    monkeypatch.setattr(deltars, "write_deltalake", write)
    pauses = list[float]()
    with pytest.raises(StillConflicting) as refused:
        append(root, INBOX, rows_of(INBOX, [{"topic": "t"}]), pauses.append)
    assert (refused.value.table, refused.value.attempts, len(pauses)) == ("inbox", deltars.ATTEMPTS, deltars.ATTEMPTS)
    monkeypatch.undo()
    assert append(root, INBOX, rows_of(INBOX, [])) == 1


def test_a_subscription_is_registered_once(root: str) -> None:
    """Saying it again changes nothing; saying it differently is refused."""
    new = Subscription("t", "s", "key_shared", "earliest", 60_000)
    assert subscribe(root, new)
    assert not subscribe(root, new)
    with pytest.raises(AlreadySubscribed) as refused:
        subscribe(root, Subscription("t", "s", tick_ms=1))
    assert (refused.value.topic, refused.value.subscription) == ("t", "s")
    assert all(subscribe(root, each) for each in (Subscription("t", "other"), Subscription("t2", "s")))
    assert len(subscriptions(root)) == 3


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "s\udcff"}),
        ("topic", {"topic": "\ud800"}),
        ("type", {"type": "fast"}),
        ("start", {"start": "middle"}),
    ],
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
    assert {each.since_deliver_at_s for each in taken} == {4.0}


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


def test_rows_that_a_deletion_wrote_again_are_not_delivered_again(root: str) -> None:
    """Retention deletes a part of a file; the rest of it moves to another file and is no news."""
    put(root, DELIVERIES, *(delivery_row(message_row(1, entry, 1_000), entry + 1) for entry in range(3)))
    reader = Deliveries(root)
    open_table(root, DELIVERIES).delete("entry_id = 0")
    assert [each.order for each in reader.take()] == [(1, 1), (1, 2), (1, 3)]


def test_a_vacuumed_version_is_named(root: str) -> None:
    """What compaction and vacuum took away cannot be followed; silence would look like nothing delivered."""
    put(root, DELIVERIES, delivery_row(message_row(1, 1, 1_000), 1))
    for file in Path(path_of(root, DELIVERIES)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(VersionGone) as refused:
        list(Deliveries(root).take())
    assert (refused.value.table, refused.value.version) == ("deliveries", 1)


def test_a_version_whose_log_was_cut_is_named(root: str) -> None:
    """A reader that stood still for longer than logs are kept would wait for ever for what is gone."""
    reader = Deliveries(root)
    for entry in range(3):
        put(root, DELIVERIES, delivery_row(message_row(1, entry, 1_000), entry + 1))
    open_table(root, DELIVERIES).create_checkpoint()
    for version in range(3):
        Path(path_of(root, DELIVERIES), "_delta_log", f"{version:020d}.json").unlink()
    with pytest.raises(VersionGone) as refused:
        list(reader.take())
    assert (refused.value.table, refused.value.version) == ("deliveries", 0)
    assert [each.order for each in Deliveries(root).take()] == [(3, 1), (3, 2), (3, 3)]


def test_a_file_without_the_columns_that_came_later_is_received(root: str) -> None:
    """An earlier version of this project wrote it; what it lacks is NULL."""
    put(root, DELIVERIES, delivery_row(message_row(1, 1, 1_000), 1))
    (file,) = Path(path_of(root, DELIVERIES)).glob("*.parquet")
    pq.write_table(pq.read_table(file).drop_columns(["round", "message_key"]), file)
    assert [(each.payload, each.key) for each in Deliveries(root).take("t")] == [(b"1.1", None)]


def test_lateness_counts_from_the_due_time_and_another_word_from_the_time_that_was_asked_for(root: str) -> None:
    """A tick that somebody asked for is no lateness; a message sent for a time in the past is not asked for then."""
    rows = [
        delivery_row(message_row(1, 1, 5_000, published=1_000), 1),
        delivery_row(message_row(1, 2, 1_000, published=5_000), 2),
        {**delivery_row(message_row(1, 3, 0, published=5_000), 3), "deliver_at": None},
    ]
    put(root, DELIVERIES, *rows)
    for each, was_asked in zip(Deliveries(root).take(), (True, True, False), strict=True):
        assert each.visible_at is not None
        assert each.late_s == (each.visible_at - at(5_024)).total_seconds()
        assert each.since_deliver_at_s == ((each.visible_at - at(5_000)).total_seconds() if was_asked else None)


def test_in_a_replay_lateness_is_measured_on_the_virtual_clock(root: str) -> None:
    """The wall clock of the replay says nothing about a message of 2013."""
    put(root, DELIVERIES, delivery_row(message_row(1, 1, 1_000), 1))
    Path(root, "_clock").mkdir()
    Path(root, "_clock", "1.json").touch()
    (only,) = Deliveries(root).take()
    assert (only.visible_at, only.late_s, only.since_deliver_at_s) == (at(1_024), 0, 0.024)

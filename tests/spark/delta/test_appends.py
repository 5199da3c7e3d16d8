"""Appends in two steps are appends to everybody who reads the table with Delta."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as Rust
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.client.create import create_all
from pipeline.config.errors import ContractBroken, ForeignOwner, UnknownTableFeature
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.messages import Bounds, MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.oncewriter import Sink
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import sync_files
from pipeline.storage.hadoop import session_files
from schemas import INBOX, MESSAGES, PUBLICATIONS
from tests.support.rows import T0, messages
from tests.support.stream import at


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """An empty table of publications, with a checkpoint of its log every second version."""
    folder = str(tmp_path / "publications")
    DeltaTable.create(spark).location(folder).addColumns(PUBLICATIONS.schema).property(
        "delta.checkpointInterval", "2"
    ).execute()
    return folder


def rows(spark: SparkSession, *batches: int) -> DataFrame:
    """A publication of each batch."""
    times = {name: F.timestamp_millis(F.lit(T0)) for name in ("committed_at", "first_due", "last_due")}
    frame = spark.createDataFrame([(batch,) for batch in batches], "batch_id bigint")
    others = {"count": F.lit(1).cast("bigint"), "job_started_at": F.lit(None).cast("timestamp")}
    return frame.withColumns(times | others)


def held(spark: SparkSession, path: str) -> list[int]:
    """The batches that Spark finds; delta-rs has to find as many."""
    found = [row["batch_id"] for row in spark.read.format("delta").load(path).collect()]
    assert len(found) == Rust(path).to_pyarrow_table().num_rows
    return sorted(found)


def jobs(spark: SparkSession) -> int:
    """How many jobs the session has run."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def test_what_a_version_names_is_on_the_disk_before_the_version_is(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut an entry of the log was empty, and read as a version that did nothing."""
    done = list[str]()

    def named(descriptor: int) -> str:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).removeprefix(path)

    def linked(old: Path, new: Path) -> None:
        done.append(f"link {Path(new).name}")
        link(old, new)

    link = os.link
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(named(descriptor)))
    monkeypatch.setattr(os, "link", linked)
    sync_files(on=True)
    try:
        appender = Appender(spark, path, PUBLICATIONS)
        (file,) = appender.put(rows(spark, 1).toArrow())
        session_files(spark).write(f"{path}/_prepared/1.json", "{}")
        appender.commit([file], "")
    finally:
        sync_files(on=False)
    entry = done.index(f"link {1:020d}.json")
    (note,) = (n for n, each in enumerate(done) if re.fullmatch(r"/_prepared/1\.json\..*\.new", each))
    assert done[note + 1] == "/_prepared"
    assert done.index(f"/{file.path}") < done.index(f"/{Path(file.path).parent}") < done.index("") < note < entry
    assert (done[entry - 1][-4:], done[entry + 1 :]) == (".tmp", ["/_delta_log"])
    done.clear()
    appender = Appender(spark, path, PUBLICATIONS)
    appender.commit(appender.put(rows(spark, 2).toArrow()), "")
    assert done == [f"link {2:020d}.json"], "a setting turns it off"


def test_files_are_seen_from_their_commit_on_and_not_before(spark: SparkSession, path: str) -> None:
    """Between the two steps the table is what it was; the commit carries the note."""
    appender = Appender(spark, path, PUBLICATIONS)
    first, second = appender.write(rows(spark, 1, 2).coalesce(1)), appender.write(rows(spark, 3))
    assert held(spark, path) == []
    assert appender.commit(second, "the second") == 1
    assert held(spark, path) == [3]
    assert appender.commit(first, "the first") == 2
    assert held(spark, path) == [1, 2, 3]
    notes = DeltaTable.forPath(spark, path).history().select("version", "userMetadata").orderBy("version").collect()
    assert [row["userMetadata"] for row in notes] == [None, "the second", "the first"]


def test_rows_of_the_driver_are_rows_like_others(spark: SparkSession, path: str) -> None:
    """Written without a job; times are times."""
    when = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    times = dict.fromkeys(("committed_at", "first_due", "last_due"), when)
    schema = arrow_schema(PUBLICATIONS.columns)
    appender = Appender(spark, path, PUBLICATIONS)
    appender.commit(appender.put(pa.Table.from_pylist([{"batch_id": 7, "count": 3, **times}], schema=schema)), "")
    found = spark.read.format("delta").load(path).where(F.col("committed_at") == F.lit(when)).collect()
    assert [row["batch_id"] for row in found] == [7]


def test_versions_of_others_are_gone_around_and_counted(spark: SparkSession, path: str) -> None:
    """Spark's own appends and rewrites lie between ours; checkpoints and sums stay right."""
    appender = Appender(spark, path, PUBLICATIONS)
    for batch in range(1, 4):
        appender.commit(appender.write(rows(spark, batch)), "")
        appender.checkpoint()
        rows(spark, 10 * batch).write.format("delta").mode("append").save(path)
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    appender.commit(appender.write(rows(spark, 99)), "")
    assert held(spark, path) == [1, 2, 3, 10, 20, 30, 99]
    log = Path(path, "_delta_log")
    sums = json.loads((log / f"{8:020d}.crc").read_text())
    detail = DeltaTable.forPath(spark, path).detail().collect()[0]
    assert (sums["numFiles"], sums["tableSizeBytes"]) == (detail["numFiles"], detail["sizeInBytes"])
    assert list(log.glob("*.checkpoint.parquet"))


def checkpoints(path: str) -> list[int]:
    """The versions with a checkpoint."""
    return sorted(int(file.name[:20]) for file in Path(path, "_delta_log").glob("*.checkpoint.parquet"))


def test_the_more_files_a_table_has_the_rarer_are_checkpoints_of_its_log(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each names all files, so with a table that grows they would soon take all the time there is."""
    monkeypatch.setattr("pipeline.delta.writing.appender._VERSION_ROWS", 2)
    monkeypatch.setattr("pipeline.delta.writing.appender._RAREST", 6)
    appender = Appender(spark, path, PUBLICATIONS)
    for batch in range(1, 31):
        appender.commit(appender.put(rows(spark, batch).toArrow()), "")
        appender.checkpoint()
    found = checkpoints(path)
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert (found[0], gaps[0], max(gaps), gaps[-1]) == (2, 2, 6, 6)
    assert held(spark, path) == list(range(1, 31))


def test_a_table_that_was_made_without_spark_has_sums_from_the_beginning(spark: SparkSession, tmp_path: Path) -> None:
    """Without them Delta runs a job for each new version that it looks at. It takes them as if they were its own."""
    create_all(str(tmp_path))
    path, before = str(tmp_path / PUBLICATIONS.name), jobs(spark)
    appender = Appender(spark, path, PUBLICATIONS)
    assert jobs(spark) == before
    for batch in (1, 2):
        appender.commit(appender.put(rows(spark, batch).toArrow()), "")
    sums = json.loads(Path(path, "_delta_log", f"{2:020d}.crc").read_text())
    detail = DeltaTable.forPath(spark, path).detail().collect()[0]
    assert (sums["numFiles"], sums["tableSizeBytes"]) == (detail["numFiles"], detail["sizeInBytes"])
    snapshot = appender._log._log.unsafeVolatileSnapshot()
    assert snapshot.checksumOpt().get().metadata().json() == snapshot.metadata().json()
    # Delta takes it over from us, and we from it.
    rows(spark, 3).write.format("delta").mode("append").save(path)
    appender.commit(appender.put(rows(spark, 4).toArrow()), "")
    assert Path(path, "_delta_log", f"{4:020d}.crc").exists()
    assert held(spark, path) == [1, 2, 3, 4]


def test_a_version_has_its_sums_before_somebody_adds_the_next(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds none beside the version before writes none: one that came too late would be the end of them."""
    rows(spark, 0).coalesce(1).write.format("delta").mode("append").save(path)
    first, second = (Appender(spark, path, PUBLICATIONS) for _ in range(2))
    of_first, of_second = (each.put(rows(spark, 1).toArrow()) for each in (first, second))
    note, is_noting, is_added = first._note_checksum, Event(), Event()

    def late(files: int, size: int, changed: dict[str, object]) -> None:
        is_noting.set()
        is_added.wait(0.3)
        note(files, size, changed)

    monkeypatch.setattr(first, "_note_checksum", late)
    with ThreadPoolExecutor(1) as beside:
        adding = beside.submit(first.commit, of_first, "")
        assert is_noting.wait(10)
        newest = second.commit(of_second, "")
        is_added.set()
        assert adding.result() == newest - 1
    assert json.loads(Path(path, "_delta_log", f"{newest:020d}.crc").read_text())["numFiles"] == 3


def test_a_checkpoint_says_what_the_log_said(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what somebody put into a file's tags; and Delta goes on from it when the entries before it are cut."""
    appender, log = Appender(spark, path, PUBLICATIONS), TableLog(spark, path)
    for batch in (1, 2, 3):
        appender.commit(appender.put(rows(spark, batch).toArrow()), "")
    seen, files = log.files()
    old = {file["path"]: file["size"] for file in files}
    fresh = appender.put(rows(spark, 1, 2, 3).toArrow())
    assert appender.replace(seen, old, fresh, {"delayline.run": "one"})
    seen, listed = log.files()
    log.checkpoint()
    for entry in Path(path, "_delta_log").glob("*.*"):
        if entry.name < f"{seen:020d}":
            entry.unlink()
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    before = jobs(spark)
    found, head = TableLog(spark, path).files()[1], TableLog(spark, path).head()
    assert jobs(spark) == before
    for name in ("live_files", "described"):
        monkeypatch.setattr(f"pipeline.delta.logs.logstore.{name}", lambda *_: None)
    assert TableLog(spark, path).head() == head
    again, by_delta = TableLog(spark, path).files()
    assert again == seen
    assert sorted(found, key=str) == sorted(by_delta, key=str) == sorted(listed, key=str)
    assert {"delayline.run": "one"} in [file["tags"] for file in found]
    (checkpoint,) = Path(path, "_delta_log").glob(f"{seen:020d}.checkpoint.parquet")
    removed = pq.read_table(checkpoint, columns=["remove"])["remove"].to_pylist()
    assert {file["path"] for file in removed if file is not None} == set(old)
    appender.commit(appender.put(rows(spark, 9).toArrow()), "")
    assert held(spark, path) == [1, 2, 3, 9]


def test_what_others_added_is_told_though_the_log_was_cut_meanwhile(spark: SparkSession, path: str) -> None:
    """A stage whose process was held up finds that another one has gone on, or it would write its batch again."""
    metadata = list[str | None]()
    first, second = Appender(spark, path, PUBLICATIONS, metadata.append), Appender(spark, path, PUBLICATIONS)
    for note in ("one", "two", "three"):
        newest = second.commit(second.put(rows(spark, 1).toArrow()), note)
    TableLog(spark, path).checkpoint()
    for entry in Path(path, "_delta_log").glob("*.*"):
        if entry.name < f"{newest:020d}":
            entry.unlink()
    assert first.newest() == newest
    assert metadata == ["three"]
    assert (first.newest(), metadata) == (newest, ["three"])


def test_files_that_could_not_be_written_are_not_left_behind(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full would be fuller with each attempt."""

    def full(_: pa.Table, where: Path) -> None:
        where.write_bytes(b"the beginning of a file")
        raise OSError(28, "No space left on device")

    before, appender = sorted(Path(path).rglob("*")), Appender(spark, path, PUBLICATIONS)
    appender.discard(appender.put(rows(spark, 1).toArrow()))
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.delta.writing.appender._write", full)
        with pytest.raises(OSError, match="No space"):
            appender.put(rows(spark, 1).toArrow())
    assert sorted(Path(path).rglob("*")) == before


def test_a_table_that_asks_for_more_than_we_know_is_refused(spark: SparkSession, path: str) -> None:
    """At the start, and at the next commit when somebody changes it meanwhile; nothing is committed."""
    appender = Appender(spark, path, PUBLICATIONS)
    files = appender.write(rows(spark, 1))
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(UnknownTableFeature, match="deletionVectors"):
        appender.commit(files, "")
    with pytest.raises(UnknownTableFeature):
        Appender(spark, path, PUBLICATIONS)
    assert spark.read.format("delta").load(path).count() == 0


def test_a_version_that_is_ours_though_the_store_denies_it_is_not_added_again(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put that is tried again after a timeout finds what it has put."""
    add = TableLog.add
    monkeypatch.setattr(TableLog, "add", lambda log, version, lines: add(log, version, lines) and False)
    appender = Appender(spark, path, PUBLICATIONS)
    assert appender.commit(appender.write(rows(spark, 1)), "") == 1
    assert held(spark, path) == [1]


def test_two_processes_of_a_stage_cannot_both_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Where the file system has no locks, the second commit finds the first, and ends its stage."""
    warehouse = Warehouse(str(tmp_path), spark)
    DeltaTable.create(spark).location(warehouse.path(PUBLICATIONS)).addColumns(PUBLICATIONS.schema).execute()
    one, other = (Sink(warehouse, PUBLICATIONS, "dispatch") for _ in range(2))
    one.append(rows(spark, 1), "one", 0, {})
    with pytest.raises(ForeignOwner, match="one"):
        other.append(rows(spark, 1), "other", 0, {})
    assert held(spark, warehouse.path(PUBLICATIONS)) == [1]


def test_a_null_in_a_required_column_is_not_committed(spark: SparkSession, path: str) -> None:
    """Delta's own append checks it too."""
    with pytest.raises(ContractBroken, match=r"publications\.count"):
        Appender(spark, path, PUBLICATIONS).write(rows(spark, 1).withColumn("count", F.lit(None)))


def test_parts_are_files_of_their_own_and_keep_their_order(spark: SparkSession, path: str) -> None:
    """A part becomes visible by itself; within it rows stay as they were sorted."""
    frame = rows(spark, *range(40)).withColumn("part", F.floor(F.col("batch_id") / 10)).coalesce(1)
    falling = frame.sortWithinPartitions("part", F.desc("batch_id"))
    appender = Appender(spark, path, PUBLICATIONS)
    parts = appender.write_by(falling, "part")
    assert list(parts) == [0, 1, 2, 3]
    appender.commit(parts[2], "")
    found = [row["batch_id"] for row in spark.read.format("delta").load(path).collect()]
    assert found == list(range(29, 19, -1))


def test_the_log_of_messages_follows_appends_and_rewrites(spark: SparkSession, tmp_path: Path) -> None:
    """Only files that may hold what is asked for are read, and none is missed, whoever wrote or rewrote them."""
    warehouse = Warehouse(str(tmp_path), spark)
    path = warehouse.path(MESSAGES)
    DeltaTable.create(spark).location(path).addColumns(MESSAGES.schema).execute()
    log, appender = MessageLog(warehouse), Appender(spark, path, MESSAGES)

    def entries(bounds: Bounds) -> list[int]:
        return sorted(row["entry_id"] for row in log.read([bounds]).where(bounds.inside).collect())

    for number in range(4):
        due = T0 + number * 1_000
        batch = messages(spark, {"ledger_id": number, "entry_id": number, "due_time": due}).coalesce(1)
        appender.commit(appender.write(batch), "")
    later = Bounds(first_due=T0 + 2_000)
    assert entries(later) == [2, 3]
    assert len(log.read([later]).inputFiles()) == 2
    assert entries(Bounds(1, 2)) == [1, 2]
    assert entries(Bounds(9, 9)) == []
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert (entries(later), len(log.read([later]).inputFiles())) == ([2, 3], 1)
    DeltaTable.forPath(spark, path).delete(F.col("due_time") == F.lit(at(T0 + 3_000)))
    assert entries(later) == [2]
    assert MessageLog(warehouse).read([later]).where(later.inside).count() == 1


def test_a_version_waits_for_a_transaction_of_deltas(spark: SparkSession, tmp_path: Path) -> None:
    """Delta looks for a version and renames its own into the place; what came in between would be gone."""
    path = str(tmp_path / "table")
    spark.range(1).write.format("delta").save(path)
    jvm, session = cast("Any", spark)._jvm, cast("Any", spark)._jsparkSession
    lock = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, path).snapshotLock()
    added: list[bool] = []
    ours = Thread(target=lambda: added.append(TableLog(spark, path).add(1, ['{"commitInfo": {}}'])))
    lock.lock()
    try:
        ours.start()
        ours.join(timeout=1)
        assert (ours.is_alive(), added) == (True, [])
    finally:
        lock.unlock()
    ours.join(timeout=30)
    assert added == [True]
    assert TableLog(spark, path).add(1, ['{"commitInfo": {}}']) is False
    assert [each.name for each in (tmp_path / "table" / "_delta_log").iterdir() if "tmp" in each.name] == []


def test_a_version_that_a_spark_producer_renamed_over_ours_is_added_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a local disk Delta looks whether a version is there and then renames: between the two we have added ours."""
    path = str(tmp_path / INBOX.name)
    DeltaTable.createIfNotExists(spark).location(path).addColumns(INBOX.schema).execute()
    appender = Appender(spark, path, INBOX)
    theirs = json.dumps({"commitInfo": {"timestamp": 1, "operation": "WRITE", "txnId": "theirs"}})

    def rename(_: float) -> None:
        monkeypatch.setattr("pipeline.delta.logs.logstore.time", SimpleNamespace(sleep=lambda _: None))
        fresh = Path(path, "_delta_log", ".fresh")
        fresh.write_text(f"{theirs}\n")
        fresh.rename(Path(path, "_delta_log", f"{1:020d}.json"))

    monkeypatch.setattr("pipeline.delta.logs.logstore.time", SimpleNamespace(sleep=rename))
    row = pa.table({each.name: pa.nulls(1, each.type) for each in arrow_schema(INBOX.schema)})
    assert appender.commit(appender.put(row), "ours") == 2
    assert spark.read.format("delta").load(path).count() == 1

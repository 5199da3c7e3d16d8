"""Maintenance beside the stages: small files of `messages` are merged as they come, and nothing ends it."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable as RustTable

from pipeline.client.create import create_all
from pipeline.config.errors import StageRunning
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import HOUR_MS, SECOND_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs import entries
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.datafiles import DataFile
from pipeline.dispatch.prepared import Part, Prepared, PreparedStore
from pipeline.maintenance import rounds, upkeep
from pipeline.maintenance.cutlogs import vacuum
from pipeline.maintenance.layout import SmallFiles, compact
from pipeline.maintenance.rewrite import Rewriting
from pipeline.maintenance.rounds import cut_logs, maintain, own_session
from pipeline.maintenance.upkeep import maintaining
from pipeline.storage.files import Files
from schemas import DELIVERIES, INBOX, MESSAGES, SEGMENTS, SUBSCRIPTIONS, TABLES, Table
from state.units import Ms
from tests.support.rows import T0, arrow_messages
from tests.support.spark import session

MANY = 16


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """An empty one."""
    made = Warehouse(str(tmp_path / "warehouse"), session())
    create_all(made.root)
    return made


def _commit(warehouse: Warehouse, count: int) -> None:
    """So many commits of a message each."""
    appender = Appender(warehouse.session, warehouse.path(MESSAGES), MESSAGES)
    row = arrow_messages({"ledger_id": 1, "entry_id": 1, "due_time": T0})
    for _ in range(count):
        appender.commit(appender.put(row), "")


def _files(warehouse: Warehouse) -> int:
    return len(RustTable(warehouse.path(MESSAGES)).file_uris())


def test_sixteen_files_are_merged_at_once(warehouse: Warehouse) -> None:
    """Also those from before the start; what was merged before waits until what comes is as large."""
    _commit(warehouse, MANY - 1)
    small = SmallFiles(warehouse)
    assert small.merge() == (0, 0)
    _commit(warehouse, 1)
    assert small.merge() == (MANY, 1)
    assert _files(warehouse) == 1
    for _ in range(3):
        _commit(warehouse, MANY)
        assert small.merge()[1] == 1
    assert _files(warehouse) <= 2
    assert RustTable(warehouse.path(MESSAGES)).to_pyarrow_table().num_rows == 4 * MANY


def test_a_thread_in_which_no_query_ran_merges_as_well(warehouse: Warehouse) -> None:
    """Delta asks the thread for its session when it reads a checkpoint of the log; this one has to be given it."""
    _commit(warehouse, MANY)
    TableLog(warehouse.session, warehouse.path(MESSAGES)).checkpoint()
    # Whoever knows the log already does not read its checkpoint.
    warehouse.spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(lambda: SmallFiles(warehouse).merge()).result() == (MANY, 1)


def test_what_somebody_else_has_merged_meanwhile_is_left_to_him(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round in another process; no message is there twice."""
    _commit(warehouse, MANY)
    small, write = SmallFiles(warehouse), Rewriting.write

    def beaten(self: Rewriting, *args: object) -> list[DataFile]:
        monkeypatch.setattr(Rewriting, "write", write)
        compact(warehouse.within(own_session(warehouse.spark)), MESSAGES)
        return write(self, *args)  # type: ignore[arg-type] # passed on as it came

    monkeypatch.setattr(Rewriting, "write", beaten)
    assert small.merge() == (0, 0)
    assert RustTable(warehouse.path(MESSAGES)).to_pyarrow_table().num_rows == MANY


def test_what_cannot_be_held_at_once_is_merged_in_smaller_parts(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not asked: it would take all cores for it, and no stage would have one."""
    _commit(warehouse, 3 * MANY)
    size = RustTable(warehouse.path(MESSAGES)).get_add_actions(flatten=True)["size_bytes"][0].as_py()
    small = SmallFiles(warehouse)
    small._most = 2 * MANY * size
    monkeypatch.setattr("pipeline.maintenance.layout._MIB", 1)
    write = Rewriting.write

    def bounded(self: Rewriting, paths: Sequence[str], count: int = 1) -> list[DataFile]:
        if len(paths) > MANY:
            raise NotInDriver
        return write(self, paths, count)

    monkeypatch.setattr(Rewriting, "write", bounded)
    assert small.merge() == (0, 0)
    assert small._most == MANY * size
    _commit(warehouse, MANY)
    assert small.merge() == (MANY, 1)
    assert small._most == 2 * MANY * size


def test_what_failed_is_tried_again_when_as_many_have_come(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk would be told of at each look."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    _commit(warehouse, MANY)
    small = SmallFiles(warehouse)
    with monkeypatch.context() as patched:
        patched.setattr(Appender, "put", full)
        with pytest.raises(OSError, match="No space"):
            small.merge()
        assert small.merge() == (0, 0)
    _commit(warehouse, MANY)
    assert small.merge() == (2 * MANY, 1)


def _versions(warehouse: Warehouse) -> list[int]:
    """The versions of `messages` that its log has."""
    return sorted(int(each.stem) for each in Path(warehouse.path(MESSAGES), "_delta_log").glob("*.json"))


def _grown(warehouse: Warehouse) -> None:
    """Commits of messages before a checkpoint and behind it."""
    _commit(warehouse, 3)
    TableLog(warehouse.session, warehouse.path(MESSAGES)).checkpoint()
    _commit(warehouse, 2)


def _cut(warehouse: Warehouse) -> set[str]:
    return set(cut_logs(warehouse, Upkeep(log_ms=0), wall_ms() + SECOND_MS))


def test_logs_are_cut_between_rounds(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that only they named go with the next round, though it finds no log to cut."""
    _grown(warehouse)
    assert _cut(warehouse) == {MESSAGES.name}
    assert _versions(warehouse) == [3, 4, 5]
    cleaned = list[Table]()
    monkeypatch.setattr(rounds, "vacuum", lambda *args: cleaned.append(args[1]))
    assert _cut(warehouse) == set()
    for cut in [set[str](), {MESSAGES.name}]:
        assert {done.entries for done in maintain(warehouse, Upkeep(), wall_ms(), cut)} == {0}
    assert cleaned == [MESSAGES]


def test_a_commit_below_the_beginning_of_a_log_is_nobody_s(warehouse: Warehouse) -> None:
    """Another tool took minutes, and took the number of a version that was cut. It counts for nothing, and goes."""
    _grown(warehouse)
    _cut(warehouse)
    log = Path(warehouse.path(MESSAGES), "_delta_log")
    late = log / f"{2:020d}.json"
    late.write_text('{"commitInfo": {}}\n{"add": {"path": "late.parquet", "dataChange": true}}\n')
    os.utime(late, (0, 0))
    stray = log.with_name("stray.parquet")
    stray.touch()
    os.utime(stray, (time.time() - 2 * 3_600,) * 2)
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, 0)
    assert not stray.exists(), "files are kept from the first entry on that counts"
    live = LiveFiles(warehouse, MESSAGES, lambda file: str(file["path"]))
    live._version = 1
    assert live.look()[0] == 5
    assert len(live.look()[1]) == 5
    _commit(warehouse, 1)
    TableLog(warehouse.session, warehouse.path(MESSAGES)).checkpoint()
    assert _cut(warehouse) == {MESSAGES.name}
    assert _versions(warehouse) == [6]


def test_a_commit_of_ours_that_comes_too_late_is_made_again(warehouse: Warehouse) -> None:
    """A process that was stopped between a look and its commit for minutes: nobody would read what it commits there."""
    _grown(warehouse)
    appender = Appender(warehouse.session, warehouse.path(MESSAGES), MESSAGES)
    _cut(warehouse)
    log, lines = TableLog(warehouse.session, warehouse.path(MESSAGES)), ['{"commitInfo": {}}']
    assert log.add(2, lines) is False
    assert _versions(warehouse) == [3, 4, 5]
    appender._version = 1
    row = arrow_messages({"ledger_id": 1, "entry_id": 1, "due_time": T0})
    assert appender.commit(appender.put(row), "") == 6


def test_what_others_read_or_write_stays(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to a table of others may take an hour, and readers follow deliveries."""
    monkeypatch.setattr("pipeline.maintenance.cutlogs.unread_from", lambda *_: 99)
    for table in (INBOX, SUBSCRIPTIONS, DELIVERIES, SEGMENTS):
        for _ in range(3):
            RustTable(warehouse.path(table)).alter.set_table_properties({"delta.checkpointInterval": "50"})
        RustTable(warehouse.path(table)).create_checkpoint()
    assert set(cut_logs(warehouse, Upkeep(log_ms=0), wall_ms() + SECOND_MS)) == {SEGMENTS.name}
    later = wall_ms() + HOUR_MS + SECOND_MS
    assert set(cut_logs(warehouse, Upkeep(log_ms=0), later)) == {INBOX.name, SUBSCRIPTIONS.name}


def test_no_log_is_cut_beside_a_round(warehouse: Warehouse) -> None:
    """It may be in another process, and ask for the age of an entry."""
    _grown(warehouse)
    with closing(maintain(warehouse, Upkeep(), wall_ms())) as work:
        next(work)
        with pytest.raises(StageRunning):
            _cut(warehouse)
    assert _cut(warehouse) == {MESSAGES.name}


def test_the_files_of_a_table_are_known_when_its_log_is_cut_meanwhile(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look at where the log begins and reading it."""
    live = LiveFiles(warehouse, MESSAGES, lambda file: str(file["path"]))
    assert live.look() == (0, {})
    _grown(warehouse)
    newest = entries.newest

    def cut(files: Files, path: str, known: int) -> int:
        found = newest(files, path, known)
        _cut(warehouse)
        return found

    monkeypatch.setattr(entries, "newest", cut)
    version, held = live.look()
    assert (version, len(held)) == (5, 5)


def test_the_next_round_is_told_which_logs_were_cut(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first one they may all have been; a cut that failed half-way, and a round that ended early, count."""
    now, done, cut_logs, cuts = [0.0], Event(), list[set[str]](), list[float]()

    def cut(*_: object) -> Generator[str]:
        now[0] += 100.0
        cuts.append(now[0])
        if cut_logs:
            yield "messages"
            raise OSError(28, "No space left on device")

    def maintain(*given: Any) -> Generator[SimpleNamespace]:  # noqa: ANN401 - the last one is looked at
        cut_logs.append(set(given[-1]))
        if len(cut_logs) == 3:
            done.set()
        for table in TABLES:
            if len(cut_logs) > 1 or table is not SEGMENTS:
                yield SimpleNamespace(table=table.name, failed=())

    monkeypatch.setattr(upkeep, "cut_logs", cut)
    monkeypatch.setattr(upkeep, "maintain", maintain)
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(upkeep, "_CUT_S", 0.0)
    with maintaining(warehouse, Upkeep(every_ms=200 * SECOND_MS)):
        assert done.wait(10)
    assert cut_logs[:3] == [{table.name for table in TABLES}, {"segments", "messages"}, {"messages"}]


def test_a_note_that_is_dropped_while_the_shelf_is_read_is_passed_over(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance asks what is prepared while dispatch shows it; a note that cannot be read is another thing."""
    shelf, names, gone = PreparedStore(warehouse.files, warehouse.path(DELIVERIES)), Files.names, list[str]()
    part = Part(1, T0, T0, ())
    shelf.put(Prepared("owner", 1, Ms(T0), (1, 0), (part,)))

    def listed(self: Files, folder: str) -> list[str]:
        return [*names(self, folder), *gone]

    monkeypatch.setattr(Files, "names", listed)
    gone.append("2.json")
    assert [each.batch for each in shelf.all()] == [1]
    warehouse.files.write(f"{warehouse.path(DELIVERIES)}/_prepared/2.json", "{")
    gone.clear()
    with pytest.raises(ValueError, match="Expecting"):
        shelf.all()


def test_rounds_come_in_time_whatever_the_merges_do(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging takes long and fails; that puts off no round, and does not end the thread."""
    now, done, rounds = [0.0], Event(), list[float]()

    class Failing:
        def __init__(self, *_: object) -> None:
            pass

        def merge(self) -> None:
            now[0] += 1_000.0
            raise OSError(28, "No space left on device")

    def maintain(*_: object) -> list[str]:
        rounds.append(now[0])
        if len(rounds) == 3:
            done.set()
        raise RuntimeError

    monkeypatch.setattr(upkeep, "SmallFiles", Failing)
    monkeypatch.setattr(upkeep, "maintain", maintain)
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(upkeep, "_LOOK_S", 0.0)
    with maintaining(warehouse, Upkeep(every_ms=HOUR_MS)):
        assert done.wait(10)
    assert rounds[:3] == [4_000.0, 8_000.0, 12_000.0]

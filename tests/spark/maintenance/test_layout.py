"""Messages sorted anew: the same rows in other files, whatever happens meanwhile."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as RustTable

from pipeline.client.create import create_all
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.messages import Bounds, MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.datafiles import DataFile
from pipeline.maintenance.layout import cluster, compact, is_new
from pipeline.maintenance.rewrite import Rewriting
from pipeline.maintenance.rounds import maintain, own_session
from schemas import INBOX, MESSAGES, TABLES
from tests.support.rows import T0, arrow_messages
from tests.support.spark import session

ANY_SIZE, FILES, ROWS = 1 << 40, 12, 40


@cache
def made() -> str:
    """The folder of such a warehouse, to be copied."""
    folder = mkdtemp()
    create_all(folder)
    spread = ([T0 + FILES * row + number for row in range(ROWS)] for number in range(FILES))
    _append(Warehouse(folder, session()), *spread)
    return folder


@pytest.fixture
def warehouse(folder: str) -> Warehouse:
    """Twelve files whose due times all span the same time: a release opens every one of them."""
    return Warehouse(copytree(made(), folder), session())


@pytest.fixture(params=["put", "write"])
def writes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The method of an appender by which files are written: in this process, or by Spark where they are not here."""
    if request.param == "write":

        def elsewhere(*_: object) -> None:
            raise NotInDriver

        monkeypatch.setattr(Rewriting, "write", elsewhere)
    return str(request.param)


def _append(warehouse: Warehouse, *files: list[int]) -> None:
    """Files with messages that are due then; each is a ledger of its own."""
    pieces = [
        [{"ledger_id": number, "entry_id": entry, "due_time": ms} for entry, ms in enumerate(due)]
        for number, due in enumerate(files)
    ]
    appender = Appender(warehouse.session, warehouse.path(MESSAGES), MESSAGES)
    appender.commit(appender.put(arrow_messages(*rows) for rows in pieces), "")


def _rows(path: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in RustTable(path).to_pyarrow_table().to_pylist())


@pytest.mark.usefixtures("writes")
def test_a_release_opens_few_files_afterwards(warehouse: Warehouse) -> None:
    """The rows are the same for every reader; who followed the table from before sees them in their new files."""
    path, log = warehouse.path(MESSAGES), MessageLog(warehouse)
    before, soon = _rows(path), [Bounds(first_due=T0 + 100, last_due=T0 + 104)]
    assert len(log.readable_paths(log.files(soon)) or ()) == FILES
    assert cluster(warehouse, 0, ANY_SIZE) == (FILES, 1)
    assert len(log.readable_paths(log.files(soon)) or ()) == 1
    assert _rows(path) == before
    assert warehouse.spark.read.format("delta").load(path).count() == len(before)
    assert not is_new(warehouse, MESSAGES)
    assert cluster(warehouse, 0, ANY_SIZE) == (0, 0)


@pytest.mark.usefixtures("writes")
def test_a_round_sorts_so_many_bytes(warehouse: Warehouse) -> None:
    """The next one goes on; files that were sorted together are not sorted again."""
    sizes = [each["size"] for each in TableLog(warehouse.session, warehouse.path(MESSAGES)).files()[1]]
    before = _rows(warehouse.path(MESSAGES))
    assert cluster(warehouse, 0, max(sizes) * 4) == (4, 1)
    assert cluster(warehouse, 0, max(sizes) * 4)[0] >= 2
    assert cluster(warehouse, 0, max(sizes) * 4) == (0, 0)
    assert _rows(warehouse.path(MESSAGES)) == before


def test_what_others_append_meanwhile_stays(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, writes: str) -> None:
    """Ingest goes on while messages are sorted."""
    write = getattr(Appender, writes)

    def slowly(appender: Appender, *words: Any) -> Any:  # noqa: ANN401 - whatever it takes and gives
        monkeypatch.setattr(Appender, writes, write)
        found = write(appender, *words)
        _append(warehouse, [T0 + FILES * ROWS])
        return found

    monkeypatch.setattr(Appender, writes, slowly)
    assert cluster(warehouse, 0, ANY_SIZE) == (FILES, 1)
    assert len(_rows(warehouse.path(MESSAGES))) == FILES * ROWS + 1


@pytest.mark.parametrize("how", ["a row is deleted", "rows are lost", "a file is gone"])
def test_files_that_are_not_what_they_were_are_left_as_they_are(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, writes: str, how: str
) -> None:
    """Somebody deletes rows meanwhile: they would come back. Or the new files have fewer rows, or none any more."""
    path, write = warehouse.path(MESSAGES), getattr(Appender, writes)

    def worse(appender: Appender, rows: Any) -> Any:  # noqa: ANN401 - as above
        if how == "rows are lost":
            return write(appender, rows.limit(7) if writes == "write" else rows.slice(7))
        if how == "a file is gone":
            found = write(appender, rows)
            Path(path, found[0].path).unlink()
            return found
        DeltaTable.forPath(warehouse.spark, path).delete("ledger_id = 3 AND entry_id = 5")
        return write(appender, rows)

    monkeypatch.setattr(Appender, writes, worse)
    assert cluster(warehouse, 0, ANY_SIZE) == (0, 0)
    assert len(_rows(path)) == FILES * ROWS - (how == "a row is deleted")
    assert len(TableLog(warehouse.session, path).files()[1]) == FILES


def test_what_was_written_before_an_error_goes(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full in the middle of a piece of work would be fuller after each round."""
    put, pieces = Appender.put, list[int]()

    def full(self: Appender, *tables: pa.Table) -> list[DataFile]:
        pieces.append(len(tables))
        if len(pieces) == 2:
            raise OSError(28, "No space left on device")
        return put(self, *tables)

    before = sorted(Path(warehouse.path(MESSAGES)).rglob("*.parquet"))
    monkeypatch.setattr(Appender, "put", full)
    table = Rewriting.of(warehouse, MESSAGES)
    with pytest.raises(OSError, match="No space"):
        table.write([file["path"] for file in table.files], 3)
    assert sorted(Path(warehouse.path(MESSAGES)).rglob("*.parquet")) == before


def test_an_error_while_messages_are_sorted_ends_no_round(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    """A full disk would stay full: what frees it comes afterwards."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Appender, writes, full)
    done = list(maintain(warehouse, Upkeep(), wall_ms()))
    assert [each.table for each in done] == [table.name for table in TABLES]


@pytest.mark.usefixtures("writes")
def test_small_files_become_one_with_the_same_rows(warehouse: Warehouse) -> None:
    """A release then opens one file, and whoever lists the table one as well; nothing is left for a second time."""
    path = warehouse.path(MESSAGES)
    before = _rows(path)
    assert compact(warehouse.within(own_session(warehouse.spark)), MESSAGES) == (FILES, 1)
    assert _rows(path) == before
    assert not is_new(warehouse, MESSAGES)
    assert compact(warehouse.within(own_session(warehouse.spark)), MESSAGES) == (0, 0)


def test_files_of_messages_are_merged_in_the_order_of_their_due_times(warehouse: Warehouse) -> None:
    """So that a release reads a row group, and not all of them."""
    compact(warehouse, MESSAGES)
    (only,) = RustTable(warehouse.path(MESSAGES)).file_uris()
    rows = pq.read_table(only, columns=["due_time", "ledger_id", "entry_id"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: tuple(row.values()))


def test_a_table_with_columns_of_somebody_else_keeps_them(warehouse: Warehouse) -> None:
    """Producers may have added some to the inbox, and what is in them is theirs."""
    path = warehouse.path(INBOX)
    rows = warehouse.spark.range(3).selectExpr("'t' AS topic", "id AS extra").coalesce(1)
    for _ in range(2):
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert compact(warehouse.within(own_session(warehouse.spark)), INBOX) == (2, 1)
    assert sorted(row.extra for row in warehouse.spark.read.format("delta").load(path).collect()) == [0, 0, 1, 1, 2, 2]

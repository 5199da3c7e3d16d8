"""Files that no version needs go, and no others. Delta is asked for it when there are some."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable

from pipeline.client.create import create_all
from pipeline.config.settings import HOUR_MS
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.maintenance import cutlogs
from pipeline.maintenance.cutlogs import vacuum
from pipeline.maintenance.layout import compact
from pipeline.maintenance.rounds import own_session
from schemas import MESSAGES
from tests.support.rows import T0, arrow_messages
from tests.support.spark import session

FILES = 3


@cache
def made() -> str:
    """The folder of a warehouse with some messages in files of their own, to be copied."""
    folder = mkdtemp()
    create_all(folder)
    appender = Appender(session(), Warehouse(folder).path(MESSAGES), MESSAGES)
    for ledger in range(FILES):
        rows = [arrow_messages({"ledger_id": ledger, "entry_id": entry, "due_time": T0}) for entry in range(2)]
        appender.commit(appender.put(pa.concat_tables(rows)), "")
    return folder


@pytest.fixture
def warehouse(folder: str) -> Warehouse:
    """Such a warehouse."""
    return Warehouse(copytree(made(), folder), session())


@pytest.fixture(params=["delta-rs looks first", pytest.param("Delta alone", marks=pytest.mark.soak)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether Delta is asked always, or when delta-rs has found something."""
    if request.param == "Delta alone":
        monkeypatch.setattr(cutlogs, "_finds", lambda *_: True)
    return str(request.param)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The hours that Delta is told, which does its work."""
    hours, vacuum_by_delta = list[int](), SparkTable.vacuum

    def vacuumed(table: SparkTable, retention: int) -> None:
        hours.append(retention)
        vacuum_by_delta(table, retention)

    monkeypatch.setattr(SparkTable, "vacuum", vacuumed)
    return hours


def aged(path: Path, hours: float) -> Path:
    """A file, or a folder, that was written so long ago."""
    os.utime(path, (time.time() - hours * 3_600,) * 2)
    return path


def first_entry(folder: Path) -> Path:
    """The first entry of the log, from whose time on files are kept."""
    return min(folder.glob("_delta_log/*.json"))


def live(folder: Path) -> list[Path]:
    """The files of the newest version."""
    return [Path(unquote(urlparse(uri).path)) for uri in DeltaTable(folder).file_uris()]


def long_ago(folder: Path, old: list[Path], first_entry_h: int = 3) -> None:
    """Files were written 72 hours ago, and taken out 48 hours ago, by the last entry of the log."""
    log = sorted(folder.glob("_delta_log/*.json"))
    actions = [json.loads(line) for line in log[-1].read_text(encoding="utf-8").splitlines()]
    for each in (action["remove"] for action in actions if "remove" in action):
        each["deletionTimestamp"] -= 48 * HOUR_MS
    log[-1].write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    for file in old:
        aged(file, 72)
    aged(log[0], first_entry_h)
    jvm: Any = session().sparkContext._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.mark.usefixtures("way")
def test_what_nobody_named_goes_when_it_is_old(warehouse: Warehouse) -> None:
    """Also below the folder; live files stay however old they are, and so does what begins with an underscore."""
    folder = Path(warehouse.path(MESSAGES))
    for name in ("_prepared", "sub"):
        (folder / name).mkdir()
    mine = [folder / "_prepared" / "1.json", folder / "young.parquet"]
    strays = [folder / "old.parquet", folder / "with a blank.parquet", folder / "sub" / "old.parquet"]
    for path in (*mine, *strays):
        path.touch()
    for path in (mine[0], *strays, *live(folder)):
        aged(path, 50)
    aged(first_entry(folder), 10)
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, HOUR_MS)
    assert [path.exists() for path in (*mine, *strays)] == [True] * 2 + [False] * 3
    assert warehouse.read(MESSAGES).count() == 2 * FILES


@pytest.mark.usefixtures("way")
def test_files_of_a_copied_log_stay_though_its_entries_are_new(warehouse: Warehouse) -> None:
    """A clone shares data files, which are as old as they were; the files of its log are as old as the clone."""
    folder = Path(warehouse.path(MESSAGES))
    old = live(folder)
    assert compact(warehouse.within(own_session(warehouse.spark)), MESSAGES) == (FILES, 1)
    long_ago(folder, old)
    first = first_entry(folder)
    actions = [json.loads(line) for line in first.read_text(encoding="utf-8").splitlines()]
    for each in actions:
        each.get("commitInfo", {}).update(timestamp=int(time.time() * 1_000) - 96 * HOUR_MS)
    first.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, HOUR_MS)
    assert all(each.exists() for each in old)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("first_entry_h", [96, 3])
def test_files_stay_as_long_as_an_entry_of_the_log_may_name_them(warehouse: Warehouse, first_entry_h: int) -> None:
    """A stage that stood still for days finds what the entries left have added, though it was merged since.

    Delta forgets after a day which files went, and by itself would keep them for no longer.
    """
    folder = Path(warehouse.path(MESSAGES))
    old = live(folder)
    assert compact(warehouse.within(own_session(warehouse.spark)), MESSAGES) == (FILES, 1)
    long_ago(folder, old, first_entry_h)
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, HOUR_MS)
    assert {file.exists() for file in old} == {first_entry_h > 72}


def test_what_a_killed_process_was_writing_goes_after_an_hour(warehouse: Warehouse) -> None:
    """Delta passes over it; somebody may still be writing what is younger."""
    old, young = (Path(warehouse.path(MESSAGES), name, "_temporary") for name in ("old", "young"))
    for folder in (old, young):
        (folder / "0").mkdir(parents=True)
        (folder / "0" / "part.parquet").touch()
    aged(old, 1.1)
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, 0)
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize(
    "feature", ["enableDeletionVectors", pytest.param("enableChangeDataFeed", marks=pytest.mark.soak)]
)
def test_files_beside_those_with_rows_stay_while_they_are_needed(warehouse: Warehouse, feature: str) -> None:
    """A deletion vector is needed as long as its file is. What tells of changes goes when it is old."""
    path = warehouse.path(MESSAGES)
    warehouse.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.{feature}' = 'true')")
    SparkTable.forPath(warehouse.spark, path).delete("entry_id = 1")
    beside = [*Path(path).glob("deletion_vector*"), *Path(path, "_change_data").glob("*.parquet")]
    assert beside
    for file in (*beside, *live(Path(path))):
        aged(file, 72)
    aged(first_entry(Path(path)), 3)
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, HOUR_MS)
    assert {file.exists() for file in beside} == {feature == "enableDeletionVectors"}
    assert warehouse.read(MESSAGES).count() == FILES


def test_nobody_asks_delta_when_nothing_is_to_go(warehouse: Warehouse, asked: list[int]) -> None:
    """A log names for a day what was taken out of the table, and is gone after the first round."""
    folder, warehouse = Path(warehouse.path(MESSAGES)), warehouse.within(own_session(warehouse.spark))
    vacuum(warehouse, MESSAGES, HOUR_MS)
    old = live(folder)
    assert compact(warehouse, MESSAGES) == (FILES, 1)
    vacuum(warehouse, MESSAGES, HOUR_MS)
    assert asked == []
    long_ago(folder, old)
    for _ in range(2):
        vacuum(warehouse, MESSAGES, HOUR_MS)
    assert len(asked) == 1
    assert not any(file.exists() for file in old)


def test_a_log_that_delta_rs_knows_in_part_is_left_to_delta(
    warehouse: Warehouse, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot say then that nothing is to go."""
    monkeypatch.setattr("pipeline.delta.warehouse._has_all", lambda *_: False)
    vacuum(warehouse.within(own_session(warehouse.spark)), MESSAGES, HOUR_MS)
    assert asked == [2]

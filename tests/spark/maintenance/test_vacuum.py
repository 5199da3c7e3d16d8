"""Files that no version needs go, and no others: by delta-rs without a job, and by Delta itself."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import SparkSession

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
    return Warehouse(copytree(made(), folder))


@pytest.fixture(params=["delta-rs", "Delta"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who finds the files. A vacuum that shall be delta-rs's does not ask Delta."""
    if request.param == "Delta":
        monkeypatch.setattr(cutlogs, "_unneeded", lambda *_: None)
    else:
        monkeypatch.setattr(SparkTable, "vacuum", lambda *_: pytest.fail("Delta was asked"))
    return str(request.param)


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


@pytest.mark.usefixtures("way")
def test_what_nobody_named_goes_when_it_is_old(spark: SparkSession, warehouse: Warehouse) -> None:
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
    vacuum(own_session(spark), warehouse, MESSAGES, HOUR_MS)
    assert [path.exists() for path in (*mine, *strays)] == [True] * 2 + [False] * 3
    assert warehouse.read(spark, MESSAGES).count() == 2 * FILES


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("first_entry_h", [96, 3])
def test_files_stay_as_long_as_an_entry_of_the_log_may_name_them(
    spark: SparkSession, warehouse: Warehouse, first_entry_h: int
) -> None:
    """A stage that stood still for days finds what the entries left have added, though it was merged since.

    Delta forgets after a day which files went, and by itself would keep them for no longer.
    """
    folder = Path(warehouse.path(MESSAGES))
    old = live(folder)
    assert compact(own_session(spark), warehouse, MESSAGES) == (FILES, 1)
    log = sorted(folder.glob("_delta_log/*.json"))
    actions = [json.loads(line) for line in log[-1].read_text(encoding="utf-8").splitlines()]
    for each in (action["remove"] for action in actions if "remove" in action):
        each["deletionTimestamp"] -= 48 * HOUR_MS
    log[-1].write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    for file in old:
        aged(file, 72)
    aged(log[0], first_entry_h)
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    vacuum(own_session(spark), warehouse, MESSAGES, HOUR_MS)
    assert {file.exists() for file in old} == {first_entry_h > 72}


def test_what_a_killed_process_was_writing_goes_after_an_hour(spark: SparkSession, warehouse: Warehouse) -> None:
    """Delta passes over it; somebody may still be writing what is younger."""
    old, young = (Path(warehouse.path(MESSAGES), name, "_temporary") for name in ("old", "young"))
    for folder in (old, young):
        (folder / "0").mkdir(parents=True)
        (folder / "0" / "part.parquet").touch()
    aged(old, 1.1)
    vacuum(own_session(spark), warehouse, MESSAGES, 0)
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("feature", ["enableDeletionVectors", "enableChangeDataFeed"])
def test_files_beside_those_with_rows_stay_while_they_are_needed(
    spark: SparkSession, warehouse: Warehouse, feature: str
) -> None:
    """A deletion vector is needed as long as its file is. What tells of changes goes when it is old."""
    path = warehouse.path(MESSAGES)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.{feature}' = 'true')")
    SparkTable.forPath(spark, path).delete("entry_id = 1")
    beside = [*Path(path).glob("deletion_vector*"), *Path(path, "_change_data").glob("*.parquet")]
    assert beside
    for file in (*beside, *live(Path(path))):
        aged(file, 72)
    aged(first_entry(Path(path)), 3)
    vacuum(own_session(spark), warehouse, MESSAGES, HOUR_MS)
    assert {file.exists() for file in beside} == {feature == "enableDeletionVectors"}
    assert warehouse.read(spark, MESSAGES).count() == FILES


def test_a_log_that_delta_rs_knows_in_part_is_left_to_delta(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take files for strays that are part of the table."""
    hours = list[int]()
    monkeypatch.setattr("pipeline.delta.smallqueries._has_all", lambda *_: False)
    monkeypatch.setattr(SparkTable, "vacuum", lambda _, told: hours.append(told))
    stray = Path(warehouse.path(MESSAGES), "old.parquet")
    stray.touch()
    aged(stray, 50)
    vacuum(own_session(spark), warehouse, MESSAGES, HOUR_MS)
    assert stray.exists()
    assert hours == [2]


def test_files_that_only_a_checkpoint_names_stay(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries that added them were cut."""
    folder = Path(warehouse.path(MESSAGES))
    DeltaTable(folder).create_checkpoint()
    for entry in sorted(folder.glob("_delta_log/*.json"))[:-1]:
        entry.unlink()
    for file in live(folder):
        aged(file, 50)
    monkeypatch.setattr(SparkTable, "vacuum", lambda *_: pytest.fail("Delta was asked"))
    vacuum(own_session(spark), warehouse, MESSAGES, 0)
    assert warehouse.read(spark, MESSAGES).count() == 2 * FILES

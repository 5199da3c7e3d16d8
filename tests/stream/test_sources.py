"""Sources that are tables and folders of files: each row is in `inbox` once, and several stand side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from os import utime
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from deltalake import write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.config.errors import BadSetting, SourcePlaceGone, StageRunning
from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.sources import Source
from pipeline.delta.warehouse import Warehouse
from pipeline.sources import running
from pipeline.subscriptions.records import REFUSED, REFUSED_MS
from pipeline.subscriptions.topicnames import routed
from tests.support.client import new_warehouse
from tests.support.examined import wrong
from tests.support.sources import following, inbox, take_all


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path / "warehouse"))
    return str(tmp_path / "warehouse")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The folder of a table of somebody else."""
    return str(tmp_path / "theirs")


def append(table: str, *names: str) -> None:
    """Rows of it, by one version."""
    write_deltalake(table, pa.table({"name": names, "wait": [1_000] * len(names)}), mode="append")


def source(table: str, name: str = "theirs", **stated: str) -> Source:
    """What a profile says of it."""
    columns: Mapping[str, str] = {"topic": "'t'", "payload": "name", "deliver_after_ms": "wait"} | stated
    return Source(name, f"delta:{table}", **columns)  # type: ignore[arg-type] # texts all


def payloads(root: str) -> list[str]:
    """What was taken."""
    return [row["payload"].decode() for row in inbox(root)]


def test_a_table_is_followed_from_its_first_row_and_each_row_is_taken_once(
    spark: SparkSession, root: str, table: str
) -> None:
    """Over starts, each of which has a new checkpoint; a version may be in the middle of a batch."""
    append(table, "a", "b")
    append(table, "c")
    take_all(spark, root, source(table))
    append(table, "d")
    take_all(spark, root, source(table))
    take_all(spark, root, source(table))
    assert payloads(root) == ["a", "b", "c", "d"]
    assert {row["deliver_after_ms"] for row in inbox(root)} == {1_000}


def test_what_a_merge_inserts_is_taken_and_what_it_changes_is_counted(
    spark: SparkSession, root: str, table: str
) -> None:
    """An upsert's new rows are in one commit with changed ones, and streams of Delta pass over all of it."""
    append(table, "a", "b", "b")
    take_all(spark, root, source(table))
    theirs = DeltaTable.forPath(spark, table)
    rows = spark.createDataFrame([("a", 2_000), ("c", 3_000), ("c", 3_000)], "name STRING, wait LONG")
    merge = theirs.alias("t").merge(rows.alias("s"), "t.name = s.name")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    append(table, "d")
    theirs.update("name = 'b'", {"wait": "7"})
    take_all(spark, root, source(table))
    taken = [row for row in inbox(root) if row["payload"] is not None]
    assert [(row["payload"], row["deliver_after_ms"]) for row in taken] == [
        *((name, 1_000) for name in (b"a", b"b", b"b")), (b"c", 3_000), (b"c", 3_000), (b"d", 1_000)
    ]  # fmt: skip
    refused = [row for row in inbox(root) if row["payload"] is None]
    assert all((row["topic"], row["deliver_after_ms"]) == ("source-theirs", REFUSED_MS) for row in refused)
    problems = sorted(dict(row["properties"])[REFUSED] for row in refused)
    assert [re.sub("of .* is", "is", each) for each in problems] == [
        "source theirs: version 1 (MERGE) is no append, 1 rows are not taken in",
        "source theirs: version 3 (UPDATE) is no append, 2 rows are not taken in",
    ]


def test_a_source_may_begin_with_what_is_new(spark: SparkSession, root: str, table: str) -> None:
    """What is there stays where it is; where the first start began is kept, though it died before its first batch."""
    append(table, "old")
    for name in ("new", "newer"):
        with following(spark, root, source(table, start="latest")):
            pass
        append(table, name)
    take_all(spark, root, source(table, start="latest"))
    assert payloads(root) == ["new", "newer"]


def test_a_table_that_was_made_again_or_set_back_stands_still(spark: SparkSession, root: str, table: str) -> None:
    """What it lacks now would be passed over when it is as long as the old one was."""
    for name in ("a", "b", "c"):
        append(table, name)
    take_all(spark, root, source(table))
    rmtree(table)
    for name in ("d", "e", "f", "g"):
        append(table, name)
        with pytest.raises(SourcePlaceGone, match="another table than was read"):
            take_all(spark, root, source(table))
    assert payloads(root) == ["a", "b", "c"]
    take_all(spark, root, source(table, "anew"))
    assert payloads(root) == ["a", "b", "c", "d", "e", "f", "g"]
    assert wrong(root) == set()


def test_columns_that_went_while_nobody_looked_stand_still(spark: SparkSession, root: str, table: str) -> None:
    """What was written before they went would be taken without them."""
    append(table, "a")
    take_all(spark, root, source(table))
    append(table, "b")
    changed = pa.table({"text": ["c"], "wait": [1_000]})
    write_deltalake(table, changed, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourcePlaceGone, match=r"the columns name of .* went or changed after version 0"):
        take_all(spark, root, source(table, payload="text"))


def test_several_sources_stand_side_by_side(spark: SparkSession, root: str, table: str) -> None:
    """Each knows its own place; one that cannot be followed leaves none running."""
    append(table, "a")
    both = [source(table, "one"), source(table, "two", payload="concat(name, '2')")]
    options = Options(LiveClock(), trigger="0 seconds")
    with running.following(Warehouse(root, spark), both, options) as loops:
        for loop in loops:
            assert loop.query is not None
            loop.query.processAllAvailable()
        with pytest.raises(StageRunning):
            take_all(spark, root, both[0])
    assert payloads(root) == ["a", "a2"]
    wrong = source(f"{table}-not-there", "wrong")
    with pytest.raises(BadSetting) as refused, running.following(Warehouse(root, spark), [both[0], wrong], options):
        pass
    assert refused.value.field == "source.wrong.from"
    take_all(spark, root, both[0])
    assert payloads(root) == ["a", "a2"]


def test_a_topic_that_was_divided_gets_rows_in_its_partitions(spark: SparkSession, root: str, table: str) -> None:
    """Also one that is divided while the source runs, in the driver and by Spark."""
    stated = {"message_key": "name"}
    append(table, "a", "b")
    with following(spark, root, source(table, **stated)) as loop:
        assert loop.query is not None
        loop.query.processAllAvailable()
        create_partitioned_topic(root, "t", 3)
        append(table, "c", "d")
        loop.query.processAllAvailable()
    taken = {row["payload"]: row["topic"] for row in inbox(root)}
    later = {name: routed("t", name.decode(), 0, 3) for name in (b"c", b"d")}
    assert taken == {b"a": "t", b"b": "t"} | later


_DAY_S = 86_400


def put(folder: Path, kind: str, *names: str, modified: float | None = None) -> None:
    """A file with rows, which is there at once; with another time than now, s since the epoch, if one is given."""
    folder.mkdir(exist_ok=True)
    rows = pa.table({"name": names, "wait": [1_000] * len(names)})
    made = folder.parent / "made"
    if kind == "json":
        made.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()), encoding="utf-8")
    elif kind == "csv":
        pa_csv.write_csv(rows, made)
    else:
        pq.write_table(rows, made)
    if modified is not None:
        utime(made, (modified, modified))
    made.rename(folder / f"{names[0]}.{kind}")


def files(folder: Path, kind: str = "json", **stated: str) -> Source:
    """What a profile says of a folder."""
    columns: Mapping[str, str] = {"topic": "'t'", "payload": "name", "deliver_after_ms": "wait"} | stated
    header = "?header=true" if kind == "csv" else ""
    return Source("theirs", f"{kind}:{folder}{header}", columns="name STRING, wait BIGINT", **columns)  # type: ignore[arg-type] # texts all


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_each_file_of_a_folder_is_taken_once(spark: SparkSession, root: str, tmp_path: Path, kind: str) -> None:
    """Those that were there, and those that come; over starts. A file that was moved or copied has an old time."""
    folder = tmp_path / "theirs"
    put(folder, kind, "a", "b")
    take_all(spark, root, files(folder, kind))
    now = (folder / f"a.{kind}").stat().st_mtime
    for name, modified in {"c": now, "d": now - 8 * _DAY_S, "e": 0, "f": now + 20_000 * _DAY_S, "g": now}.items():
        put(folder, kind, name, modified=modified)
        if kind == "json" or name == "g":
            take_all(spark, root, files(folder, kind))
    take_all(spark, root, files(folder, kind))
    assert payloads(root) == ["a", "b", "c", "d", "e", "f", "g"]
    assert {row["deliver_after_ms"] for row in inbox(root)} == {1_000}


def test_what_is_forgotten_of_files_that_are_gone_takes_none_again(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    """Spark goes on with the list as it was shortened, and its next one is as short."""
    folder, interval = tmp_path / "theirs", "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(interval, "2")
    try:
        for number, name in enumerate("abcdefgh"):
            put(folder, "json", name)
            take_all(spark, root, files(folder))
            if number == 3:
                for gone in "ab":
                    (folder / f"{gone}.json").unlink()
    finally:
        spark.conf.unset(interval)
    assert payloads(root) == list("abcdefgh")
    whole = Path(root, "_checkpoints/source-theirs/sources/0/7.compact").read_text(encoding="utf-8")
    assert [json.loads(line)["path"][-6:] for line in whole.splitlines()[1:]] == [f"{name}.json" for name in "cdefgh"]


ODD = ["b", "b c", "100%", "%20", "ü", "a#b", "a+b"]
"""Names of files that are written otherwise in a URL."""


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_link_that_leads_out_of_a_folder_is_not_followed(
    spark: SparkSession, root: str, tmp_path: Path, kind: str
) -> None:
    """Who may write into the folder would read with the rights of the job. It is told, and the others are taken.

    Whatever their names are: with a blank in one of them the source stood for ever.
    """
    folder, secret = tmp_path / "theirs", tmp_path / "secret"
    put(secret, kind, "password")
    put(folder, kind, "a")
    for name in ODD:
        (folder / f"{name}.{kind}").symlink_to(folder / f"a.{kind}")
    (folder / f"c.{kind}").symlink_to(secret / f"password.{kind}")
    take_all(spark, root, files(folder, kind))
    (folder / f"d.{kind}").symlink_to(secret / f"password.{kind}")
    take_all(spark, root, files(folder, kind))
    assert [row["payload"] for row in inbox(root) if row["payload"] is not None] == [b"a"] * (1 + len(ODD))
    problems = [dict(row["properties"])[REFUSED] for row in inbox(root) if row["payload"] is None]
    problem = "is not taken: a link leads out of the folder"
    assert sorted(problems) == [f"source theirs: {folder}/{name}.{kind} {problem}" for name in "cd"]


def test_a_file_whose_name_is_a_pattern_is_told_and_the_others_are_taken_once(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    """Spark read the whole folder once more for each of them, and each message came several times."""
    folder = tmp_path / "theirs"
    put(folder, "json", "a")
    put(folder, "json", "b (1)")
    strange = ["[x]", "x*", "x?", "{x,y}"]
    for name in strange:
        put(folder, "json", name)
    take_all(spark, root, files(folder))
    assert [row["payload"] for row in inbox(root) if row["payload"] is not None] == [b"a", b"b (1)"]
    problems = sorted(dict(row["properties"])[REFUSED] for row in inbox(root) if row["payload"] is None)
    assert [each.partition(" is not taken: Spark")[0] for each in problems] == [
        f"source theirs: {folder}/{name}.json" for name in strange
    ]
    (folder / "[x].json").rename(folder / "x.json")
    take_all(spark, root, files(folder))
    assert [row["payload"] for row in inbox(root) if row["payload"] is not None] == [b"[x]", b"a", b"b (1)"]


@pytest.mark.parametrize("step", ["files", "inbox"])
def test_a_batch_of_files_that_dies_around_its_commit_is_taken_once(
    spark: SparkSession, root: str, tmp_path: Path, step: str
) -> None:
    """Spark repeats it; the commit tells whether it was taken."""
    folder = tmp_path / "theirs"
    put(folder, "json", "a", "b")

    def die(seen: str, _batch: int) -> None:
        if seen == f"source-theirs.{step}":
            raise RuntimeError(seen)

    with pytest.raises(StreamingQueryException, match="source-theirs"):
        take_all(spark, root, files(folder), die)
    assert payloads(root) == (["a", "b"] if step == "inbox" else [])
    put(folder, "json", "c")
    take_all(spark, root, files(folder))
    assert payloads(root) == ["a", "b", "c"]


def test_files_are_not_taken_again_when_what_says_so_is_gone(spark: SparkSession, root: str, tmp_path: Path) -> None:
    """The source stands still: only Spark's checkpoint knows the files. A line that cannot be read is refused."""
    folder = tmp_path / "theirs"
    with pytest.raises(BadSetting, match=r"source\.theirs\.from"):
        take_all(spark, root, files(folder))
    put(folder, "json", "a")
    (folder / "b.json").write_text("{broken\n", encoding="utf-8")
    take_all(spark, root, files(folder))
    good, bad = sorted(inbox(root), key=lambda row: row["payload"] is None)
    assert (good["payload"], good["deliver_after_ms"]) == (b"a", 1_000)
    assert bad["deliver_after_ms"] == REFUSED_MS
    assert dict(bad["properties"])[REFUSED].endswith("/theirs/b.json")
    checkpoint, older = Path(root, "_checkpoints", "source-theirs"), tmp_path / "older"
    copytree(checkpoint, older)
    put(folder, "json", "c")
    take_all(spark, root, files(folder))
    rmtree(checkpoint)
    with pytest.raises(SourcePlaceGone):
        take_all(spark, root, files(folder))
    copytree(older, checkpoint)
    with pytest.raises(SourcePlaceGone):
        take_all(spark, root, files(folder))
    assert len(inbox(root)) == 3
    take_all(spark, root, replace(files(folder), name="anew"))
    assert len(inbox(root)) == 6

"""Files by Python on this machine's file system, and by Hadoop on any: the same to whoever calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.jvm import java_class
from pipeline.config.sparkversion import hadoop, hadoop_aws, spark_line
from pipeline.delta.logs.entries import uri_name
from pipeline.delta.logs.logstore import TableLog
from pipeline.storage.files import Files
from pipeline.storage.hadoop import session_files
from pipeline.storage.storecheck import NoConnector, check_store
from tests.support.filesystems import live_through

FILE_CONTEXT = "fs.AbstractFileSystem.file.impl"


@pytest.fixture(params=["here", "by Hadoop"])
def files(spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Files of the session; Hadoop's are those of a machine that thinks that nothing lies on it.

    Hadoop has two ways to a local file, and our sessions do without sums in both: here both keep them, as elsewhere.
    """
    context: Any = spark.sparkContext
    settings = context._jsc.hadoopConfiguration()
    ours, system = settings.get(FILE_CONTEXT), context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(settings)
    if request.param == "by Hadoop":
        monkeypatch.setattr(Files, "local", lambda *_: None)
        settings.set(FILE_CONTEXT, "org.apache.hadoop.fs.local.LocalFs")
        system.setWriteChecksum(True)
    yield session_files(spark)
    system.setWriteChecksum(False)
    settings.set(FILE_CONTEXT, ours)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_what_is_written_can_be_read_replaced_moved_and_deleted(files: Files, tmp_path: Path, scheme: str) -> None:
    """Each step as the next one sees it; odd characters in a name are just characters."""
    live_through(files, f"{scheme}{tmp_path}/a b%20c")


def test_both_go_on_with_what_the_other_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop keeps a sum beside a file and refuses what does not fit it."""
    here, hadoop, path = session_files(spark), session_files(spark), f"{tmp_path}/file"
    monkeypatch.setattr(hadoop, "local", lambda _: None)
    for number in range(2):
        hadoop.delete(path)
        hadoop.write(path, f"hadoop {number}")
        assert here.text(path) == f"hadoop {number}"
        here.write(path, f"python {number}")
        assert hadoop.text(path) == f"python {number}"
        here.delete(path)
        hadoop.write(path, "to be moved")
        here.move(path, f"{path}.aside")
        here.write(path, "fresh")
        assert [hadoop.text(f"{path}.aside"), hadoop.text(path)] == ["to be moved", "fresh"]
        hadoop.delete(f"{path}.aside")


@pytest.mark.parametrize("path", ["s3a://bucket/x", "hdfs://host/x", "abfss://c@a.dfs.core.windows.net/x"])
def test_other_file_systems_are_not_here(spark: SparkSession, path: str) -> None:
    """Nothing is asked of them to know that."""
    assert session_files(spark).local(path) is None


def test_a_path_without_a_beginning_is_where_spark_looks_for_it(spark: SparkSession) -> None:
    """A warehouse may be named as it is typed."""
    assert session_files(spark).local("some/warehouse") == Path.cwd() / "some/warehouse"


def test_spark_gives_a_file_the_name_that_we_expect(spark: SparkSession, tmp_path: Path) -> None:
    """By it rows are told apart that others have taken, and put into the order of their commits."""
    odd = "a b%20c!~'()*,;$&+=@-é[x]{y}^`|\"<>.parquet"
    spark.range(1).coalesce(1).write.parquet(str(tmp_path / "made"))
    (written,) = (tmp_path / "made").glob("part-*.parquet")
    (tmp_path / "odd").mkdir()
    written.rename(tmp_path / "odd" / odd)
    path = spark.read.parquet(str(tmp_path / "odd")).select(F.input_file_name()).collect()[0][0]
    assert path.rpartition("/")[2] == uri_name(odd)


def test_a_version_starts_no_process_and_a_checkpoint_file_one(spark: SparkSession, tmp_path: Path) -> None:
    """Without its native library Hadoop asks a program for each thing that it wants to know; a batch has ten files."""
    context: Any = spark.sparkContext
    jvm, conf = context._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    log = TableLog(spark, str(tmp_path / "table"))
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "offsets" / "0"))
    package = spark_line().file_manager.rpartition(".")[0]
    manager = java_class(spark, f"{package}.CheckpointFileManager").create(path, conf)
    manager.mkdirs(path.getParent())
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart").withoutThreshold()
    recording.start()
    assert log.add(log.head().version + 1, ['{"commitInfo": {}}'])
    manager.createAtomic(path, False).close()  # noqa: FBT003 - Spark has no name for "overwrite"
    recording.stop()
    file = jvm.java.nio.file.Path.of(str(tmp_path / "recording.jfr"), context._gateway.new_array(jvm.String, 0))
    recording.dump(file)
    started = [each.getString("command") for each in jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(file)]
    recording.close()
    assert len([each for each in started if str(tmp_path) in each]) <= 1, started
    assert [each.name for each in (tmp_path / "offsets").iterdir()] == ["0"]


def test_a_file_that_is_copied_leaves_no_sum_behind(spark: SparkSession, tmp_path: Path) -> None:
    """RocksDB's snapshots come and go by such copies, which only one class of Hadoop's can do for this machine."""
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    source, target = tmp_path / "snapshot", tmp_path / "folder" / "copy"
    source.write_bytes(b"state")
    folder = hadoop.Path(str(target)).getFileSystem(context._jsc.hadoopConfiguration())
    folder.copyFromLocalFile(hadoop.Path(str(source)), hadoop.Path(str(target)))
    assert [(each.name, each.read_bytes()) for each in target.parent.iterdir()] == [("copy", b"state")]


def test_a_session_without_the_connector_for_s3_says_what_is_missing(spark: SparkSession) -> None:
    """`spark-submit` brings the JARs, and who forgets one saw a stack trace of Java."""
    with pytest.raises(NoConnector) as refused:
        check_store(spark, "s3a://bucket/warehouse")
    assert refused.value.root == "s3a://bucket/warehouse"
    assert f"a JAR is missing; start with --packages {hadoop_aws(hadoop())}" in str(refused.value)
    check_store(spark, "hdfs://nobody/asks")

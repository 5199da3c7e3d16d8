"""The Spark session: every setting with its reason."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.jars import StrangeJar, check_jars, jar_path
from pipeline.config.jvm import hadoop_settings, java_class, keep_classes, start_jvm
from pipeline.config.lazyspark import deltaspark, pyspark
from pipeline.config.paths import is_s3, python_environment
from pipeline.config.s3 import Store
from pipeline.config.settings import check, check_text
from pipeline.config.sizing import cores_here, heap_for, memory_here
from pipeline.config.sparkversion import (
    check_store_of,
    check_versions,
    hadoop,
    hadoop_aws,
    hadoop_there,
    spark_line,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_SHORT = 40
"""Characters of the folder for temporary files in which a socket may lie: its path has 104 at most."""
_ATTEMPTS = 4
"""Of a task, as on a cluster. Spark's default here is one: a Python worker that is killed, for memory most of all,
would end its query."""

PARTITIONS = "spark.sql.shuffle.partitions"
"""May change while a session runs; a stateful query keeps what it found at its first start."""

CORRECTNESS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Times are UTC everywhere; a session in another zone would shift what Python and SQL see.
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, has no statistics in Parquet: a load by due time then reads whole tables.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Heap state is held twice during a commit; RocksDB with a changelog writes only what changed.
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.minBatchesToRetain": "100",
    # Offsets are read back from the log by `pipeline.delta.checkpoints`, which knows this format.
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    # A repeated batch reads the registry at the version that it noted, however long ago. Its files are never vacuumed.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # A process that dies while it notes its first batch leaves a temporary file there, and Spark would refuse every
    # further start. Whether a checkpoint is the one of its tables is looked at by `pipeline.service.startup`.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # What a source tells its client is an option of a stream, and plans show options: secrets are left out of them.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore|ssl.key",
    # Workers start as `python -m`, which imports from the folder in which somebody stands: there may be anything.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # A speculative copy of a task writes the same rows again, and its state store version is thrown away.
    "spark.speculation": "false",
}

SOCKETS = {
    # Spark and its Python workers answer each other in small pieces. By TCP one waits for up to 40 ms until the system
    # has confirmed the one before, and a task of the schedule took twice as long (decision 0081). Paths of sockets must
    # be short, and the folder for temporary files of a node may lie deep.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 - names are random, and only their owner may connect
}

COST = {
    # Tasks that gather the state of a Delta log. Each generates the code that reads entries again, which takes longer
    # than reading thousands of them. Delta's 50 are most of the time of a small commit.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Frames of the stateful stage: state values have megabytes, and Arrow batches are not bounded in bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Plans are made for a batch and run once. Planning them again between their shuffles makes a job of each stage.
    "spark.sql.adaptive.enabled": "false",
    # Instants, ledgers and windows are literals of a batch's plans: compiled ones are compiled again in each batch, and
    # run cold.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The schedule asks for a few answers with a limit. Spark would ask one partition first, and then the others.
    "spark.sql.limit.initialNumPartitions": "100000",
    # Files of `messages` are named one by one; above Spark's 32 it starts a job only to ask for their sizes.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Without Hadoop's native library a process is started (`chmod`) for every file that is written, and for the sums
    # beside it. Spark keeps sums of its own for what lies in a checkpoint.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # A stage that idles asks its sources so often; each question is one to Python, which looks for a name.
    "spark.sql.streaming.pollingDelay": "50ms",
    # A worker that starts on a machine that is busy needs more than the default of 15 s, and a query dies of that.
    "spark.python.authenticate.socketTimeout": "120s",
    # stop() in the middle of a deep plan may overflow the default stack.
    _JAVA_OPTIONS: "-Xss16m",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.debug.maxToStringFields": "200",
    # The plan of each batch becomes text for listeners. The long form of it takes a twentieth of a batch.
    "spark.sql.ui.explainMode": "simple",
}

IN_STORES = {
    # A second file beside each file of the state, written and renamed like it. A store checks what it keeps by itself,
    # and rows have sums of their own.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


@dataclass(frozen=True)
class Machine:
    """What a local session takes of this machine; a cluster has its own.

    Attributes:
        cores: tasks that run at once.
        memory: heap of the JVM, as Spark writes it.
        partitions: shuffle partitions, to begin with.
        java_options: options of the JVM, beside those that delayline sets.
    """

    cores: int = field(default_factory=cores_here)
    memory: str = field(default_factory=lambda: heap_for(memory_here()))
    partitions: int = 2
    java_options: str = ""

    def __post_init__(self) -> None:
        """Refuse values that could not work."""
        check("cores", self.cores, 1, 100_000)
        check("partitions", self.partitions, 1, 100_000)
        check_text("memory", self.memory)
        check_text("java_options", self.java_options)


@contextmanager
def set_meanwhile(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session while the block runs; afterwards they are what they were."""
    known = {key: str(spark.conf.get(key)) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in known.items():
            spark.conf.set(key, value)


def compiled(spark: SparkSession, *, when: bool = True) -> AbstractContextManager[None]:
    """Let Spark compile the plans that are made in the block, as it does by itself: with many rows that pays."""
    return set_meanwhile(spark, COMPILED if when else {})


@contextmanager
def kept(rows: DataFrame, *, when: bool = True) -> Iterator[DataFrame | None]:
    """Hold rows that are read several times while the block runs, on the disk if need be; None when they are not."""
    if not when:
        yield None
        return
    rows.persist(pyspark.StorageLevel.MEMORY_AND_DISK)
    try:
        yield rows
    finally:
        rows.unpersist()


def builder(app: str, *paths: str) -> SparkSession.Builder:
    """A session builder with all settings of the pipeline, and of the store when one of the paths lies in S3.

    Raises:
        WrongVersion: Spark, or what is installed beside it, is one that would fail later.
    """
    check_versions()
    plain = pyspark.sql.SparkSession.builder.appName(app)
    store = Store.of(os.environ).hadoop() | IN_STORES if any(map(is_s3, paths)) else {}
    for key, value in (CORRECTNESS | SOCKETS | COST | store).items():
        plain = plain.config(key, value)
    return plain


def submitted_session(app: str, *paths: str) -> SparkSession:
    """The session of a job that spark-submit started.

    Who may write to the sockets of Python workers is said by whoever submits (`docs/security.md`): that wins over ours.
    """
    start_jvm()
    stated, made = pyspark.SparkConf(), builder(app, *paths)
    for key in SOCKETS:
        if stated.contains(key):
            made = made.config(key, str(stated.get(key)))
    return made.getOrCreate()


def private_folders() -> dict[str, str]:
    """Settings by which sockets, and what Spark spills, lie in a folder that only the user of this process may enter.

    Whoever may write to a socket of Spark's Python workers runs code as the job, and what is spilled has payloads; both
    have the rights that the umask leaves. The folder goes when the process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="delayline-", dir=None if len(tempfile.gettempdir()) <= _SHORT else "/tmp"))  # noqa: S108 - a folder of its own in it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"spark.python.unix.domain.socket.dir": str(folder), "spark.local.dir": str(folder)}


def local_session(
    app: str,
    machine: Machine | None = None,
    *paths: str,
    extra: Mapping[str, str] | None = None,
    jars: Sequence[str] = (),
    packages: Sequence[str] = (),
) -> SparkSession:
    """A session in this process: local Spark, local Delta, with the JARs that they need.

    Args:
        app: the application's name.
        machine: what it takes of this one; the defaults without it.
        paths: a warehouse, and what else it will read. In S3 that takes another JAR, which is large, and settings.
        extra: further settings, which win over ours.
        jars: paths of the JARs that they need, when they are known; else Spark resolves them, which takes a second.
        packages: what else they need, as Maven names it.

    Raises:
        StrangeJar: Spark resolved a JAR that is not as `conf/jars.lock` says.
        WrongVersion: Spark, or what is installed beside it, is one that would fail later.
    """
    machine = machine or Machine()
    for warehouse in filter(is_s3, paths[:1]):
        check_store_of(hadoop(), warehouse)
    # Workers start another interpreter: the same one, with the same packages, or they miss every import.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.update(python_environment())
    plain = (
        builder(app, *paths).master(f"local[{machine.cores},{_ATTEMPTS}]").config("spark.driver.memory", machine.memory)
    )
    plain = plain.config(_JAVA_OPTIONS, f"{COST[_JAVA_OPTIONS]} {machine.java_options}")
    plain = plain.config(PARTITIONS, str(machine.partitions)).config("spark.ui.enabled", "false")
    # The one that Spark chooses for this machine starts four processes (`readlink`) for each file that it renames.
    plain = plain.config("spark.sql.streaming.checkpointFileManagerClass", spark_line().file_manager)
    plain = plain.config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in private_folders().items():
        plain = plain.config(key, value)
    for key, value in (extra or {}).items():
        plain = plain.config(key, value)
    if jars:
        plain = plain.config("spark.driver.extraClassPath", os.pathsep.join(jars))
    else:
        wanted = [*packages, *_connectors(paths)]
        plain = deltaspark.configure_spark_with_delta_pip(plain, extra_packages=wanted)
    spark = plain.getOrCreate()
    if not jars:
        try:
            check_jars(resolved(spark))
        except StrangeJar:
            spark.stop()
            raise
    keep_classes(spark)
    without_sums(spark)
    return spark


_OF_A_PROGRAM = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.sql.session.timeZone")
"""What a program needs to see the tables as the job does. How the job plans its batches is nobody else's."""


def program_session(app: str, *paths: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session of a program that reads and writes the tables, on this machine; or the one that it has already.

    That one has its JARs. A Spark that brings no Hadoop of its own is a platform's, which reaches its store by itself.

    Args:
        app: the application's name.
        paths: what it will read and write. In S3 that takes another JAR, which is large, and settings.
        extra: further settings, which win over ours.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {name: CORRECTNESS[name] for name in _OF_A_PROGRAM}
    settings |= {_JAVA_OPTIONS: COST[_JAVA_OPTIONS], "spark.ui.showConsoleProgress": "false"}
    settings |= {**(Store.of(os.environ).hadoop() if any(map(is_s3, paths)) else {}), **(extra or {})}
    plain = pyspark.sql.SparkSession.builder.appName(app)
    for key, value in settings.items():
        plain = plain.config(key, value)
    if pyspark.sql.SparkSession.getActiveSession() is None:
        wanted = _connectors(paths) if hadoop_there() else []
        plain = deltaspark.configure_spark_with_delta_pip(plain, extra_packages=wanted)
    return plain.getOrCreate()


def _connectors(paths: Sequence[str]) -> list[str]:
    """What Spark needs to reach some paths, as Maven names it."""
    return [hadoop_aws(hadoop())] if any(map(is_s3, paths)) else []


def resolved(spark: SparkSession) -> list[Path]:
    """The JARs that a session got beside those of Spark itself."""
    jars = spark.sparkContext.getConf().get("spark.jars") or ""
    return [jar_path(each) for each in jars.split(",") if each]


def without_sums(spark: SparkSession) -> None:
    """Let Hadoop write no sums beside files of this machine: without its native library a process is started for each.

    It removes those that are there with their files, and a file that had one is still checked against it.
    """
    java_class(spark, "org.apache.hadoop.fs.FileSystem").getLocal(hadoop_settings(spark)).setWriteChecksum(False)

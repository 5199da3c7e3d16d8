"""A stream of a Delta table that looks for the next version by its name is what Delta's own stream is."""

from __future__ import annotations

import gc
import shutil
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.jvm import java_class
from pipeline.config.settings import VirtualClock
from pipeline.config.sparkversion import spark_line
from pipeline.delta.checkpoints import EVERYTHING_BEFORE
from pipeline.delta.logs.entries import entry
from pipeline.delta.streams import log
from pipeline.delta.streams.log import LogSource, PlaceSource, SourceReplaced
from pipeline.delta.streams.source import StreamSource
from pipeline.service.clock import ticks
from pipeline.storage.files import Files
from pipeline.storage.local import LocalFiles

BEGIN = (0, EVERYTHING_BEFORE)


class Table:
    """A table of numbers, and a query that follows it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.path, self._checkpoint = spark, str(folder / "numbers"), str(folder / "checkpoint")
        self.batches = list[list[int]]()

    def append(self, *numbers: int, files: int = 1, **options: str) -> None:
        """A version that appends numbers, one after the other."""
        rows = self._spark.range(numbers[0], numbers[-1] + 1, numPartitions=files).toDF("number")
        rows.write.format("delta").mode("append").options(**options).save(self.path)

    def sql(self, text: str) -> None:
        """A statement on the table."""
        self._spark.sql(text.format(table=f"delta.`{self.path}`"))

    def ours(self, max_files: int = 100, max_bytes: int | None = None) -> DataFrame:
        """The stream under test."""
        return LogSource(self._spark, self.path, BEGIN, max_files, max_bytes).stream()

    def deltas(self) -> DataFrame:
        """Delta's own."""
        options = {"startingVersion": "0", "skipChangeCommits": "true"}
        return self._spark.readStream.format("delta").options(**options).load(self.path)

    def take(self, stream: DataFrame) -> list[list[int]]:
        """What the batches of a query hold that goes on from the checkpoint and takes what there is."""
        before = len(self.batches)
        query = stream.writeStream.foreachBatch(self._note).option("checkpointLocation", self._checkpoint).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return [sorted(each) for each in self.batches[before:] if each]

    def offset(self) -> str:
        """The place of the last batch, as the checkpoint has it."""
        last = max(Path(self._checkpoint, "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return last.read_text(encoding="utf-8").splitlines()[-1]

    def _note(self, rows: DataFrame, _batch: int) -> None:
        self.batches.append([row["number"] for row in rows.collect()])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """A table of one version."""
    made = Table(spark, tmp_path)
    made.append(1, 2)
    return made


def test_either_source_goes_on_from_what_the_other_one_noted(table: Table) -> None:
    """Checkpoints of earlier releases go on, and an earlier release goes on from a checkpoint of this one."""
    assert table.take(table.deltas()) == [[1, 2]]
    theirs = table.offset()
    table.append(3)
    assert table.take(table.ours()) == [[3]]
    assert table.offset() == theirs.replace('"reservoirVersion":1', '"reservoirVersion":2')
    table.append(4)
    assert table.take(table.deltas()) == [[4]]
    assert table.take(table.ours()) == []


def test_what_takes_rows_out_or_writes_them_again_is_no_news(table: Table) -> None:
    """Deletes, merges of files and changes of properties; the place goes on, so that the log need not stay."""
    table.append(3, 4)
    table.sql("DELETE FROM {table} WHERE number = 1")
    table.sql("OPTIMIZE {table}")
    table.sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')")
    table.append(5)
    assert sorted(chain.from_iterable(table.take(table.ours()))) == [1, 2, 3, 4, 5]
    assert '"reservoirVersion":6,' in table.offset()


@pytest.mark.parametrize(("limit", "batches"), [({"max_files": 2}, 3), ({"max_bytes": 1}, 5), ({}, 1)])
def test_a_batch_takes_no_more_files_or_bytes_than_it_may(table: Table, limit: dict[str, int], batches: int) -> None:
    """At least one file; it may end in the middle of a version."""
    table.append(3, 4, 5, 6, files=4)
    taken = table.take(table.ours(**limit))
    assert (sorted(chain.from_iterable(taken)), len(taken)) == ([1, 2, 3, 4, 5, 6], batches)


def test_names_of_files_may_have_any_character(table: Table) -> None:
    """As Delta writes them: decoded in one place, and encoded in the other."""
    table.path += "_2"
    table.sql("CREATE TABLE {table} (number BIGINT, part STRING) USING delta PARTITIONED BY (part)")
    table.sql("INSERT INTO {table} VALUES (7, 'a b%20/:é=')")
    assert table.take(table.ours()) == [[7]]


def test_other_columns_end_the_query_and_the_next_one_has_them(table: Table) -> None:
    """A query keeps the columns that it began with."""
    stream = table.ours()
    table.append(3)
    table.sql("ALTER TABLE {table} ADD COLUMN (name STRING)")
    with pytest.raises(StreamingQueryException, match=r"ColumnsChanged.* since version 2"):
        table.take(stream)
    table.append(4, mergeSchema="true")
    assert table.take(table.ours()) == [[1, 2, 3, 4]]


def test_a_log_that_was_cut_behind_the_place_is_not_waited_for(table: Table) -> None:
    """What comes would be passed over, or never come."""
    table.append(3)
    table.append(4)
    DeltaTable(table.path).create_checkpoint()
    Path(table.path, "_delta_log", f"{0:020d}.json").unlink()
    with pytest.raises(StreamingQueryException, match=r"VersionGone.* version 0 cannot be read any more"):
        table.take(table.ours())


def test_a_table_that_was_made_again_is_another_one(table: Table) -> None:
    """The place says nothing of it."""
    table.take(table.ours())
    shutil.rmtree(table.path)
    table.append(3)
    with pytest.raises(StreamingQueryException, match="SourceReplaced"):
        table.take(table.ours())


def test_who_asks_again_lists_no_log(table: Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows for as long as it is kept."""
    source = PlaceSource(spark, table.path, BEGIN, 100)
    limit, none = source.getDefaultReadLimit(), java_class(spark, "scala.Option").empty()
    first = source.latestOffset(None, limit)
    assert first is not None
    monkeypatch.setattr(LocalFiles, "names", lambda *_: pytest.fail("the log was listed"))
    assert source.latestOffset(first, limit) == first
    table.append(3)
    second = source.latestOffset(first, limit)
    assert second is not None
    assert '"reservoirVersion":2,' in second.json()
    assert source.getBatch(none, second).queryExecution().analyzed().data().isEmpty()


def test_what_spark_is_answered_stays_until_it_has_it(table: Table, spark: SparkSession) -> None:
    """Py4J lets the JVM forget what Python has no reference to: Spark got NULL now and then, and the job ended."""
    none = java_class(spark, "scala.Option").empty()
    sources: list[StreamSource] = [kind(spark, table.path, BEGIN, 100) for kind in (PlaceSource, LogSource)]
    sources.append(ticks(spark, VirtualClock(), f"{table.path}/clock"))
    for source, end in zip(sources, ("", "", '{"instant": 5}'), strict=True):
        limit = source.getDefaultReadLimit()
        place: Any = source.deserializeOffset(end) if end else source.latestOffset(None, limit)
        answers = [ref(place), ref(source.getBatch(none, place))]
        if not end:
            # What Spark gives to a method is an object of its own in Python, and is the answer when nothing came.
            given = java_class(spark, f"{spark_line().runtime}.SerializedOffset")(place.json())
            answers.append(ref(source.latestOffset(given, limit)))
            del given
        del place
        gc.collect()
        assert None not in [each() for each in answers]


def test_what_comes_while_it_is_looked_for_is_no_gap(
    table: Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions that are added between two looks are not a log that was cut."""
    source = PlaceSource(spark, table.path, BEGIN, 100)
    limit = source.getDefaultReadLimit()
    first = source.latestOffset(None, limit)

    def late(files: Files, path: str, version: int) -> list[dict[str, Any]] | None:
        found = entry(files, path, version)
        if found is None and version == 1:
            table.append(3)
            table.append(4)
        return found

    monkeypatch.setattr(log, "entry", late)
    assert source.latestOffset(first, limit) == first
    monkeypatch.undo()
    second = source.latestOffset(first, limit)
    assert second is not None
    assert '"reservoirVersion":3,' in second.json()


def test_a_table_that_ends_before_the_place_is_another_one(table: Table, spark: SparkSession) -> None:
    """Whoever waited for it to be that long again would pass over what comes until then."""
    source = PlaceSource(spark, table.path, (5, EVERYTHING_BEFORE), 100)
    with pytest.raises(SourceReplaced, match="set back"):
        source.latestOffset(None, source.getDefaultReadLimit())


def test_other_columns_of_partitions_end_the_query(table: Table, spark: SparkSession) -> None:
    """Values of such a column are not in the files."""
    table.sql("ALTER TABLE {table} ADD COLUMN (part STRING)")
    stream = table.ours()
    rows = spark.createDataFrame([(3, "x")], "number bigint, part string").write.format("delta").mode("overwrite")
    rows.option("overwriteSchema", "true").partitionBy("part").save(table.path)
    with pytest.raises(StreamingQueryException, match="ColumnsChanged"):
        table.take(stream)


def test_what_lies_before_the_begin_of_a_checkpoint_is_not_taken(table: Table, spark: SparkSession) -> None:
    """Earlier releases noted places there, and passed over the files."""
    table.append(3)
    source = LogSource(spark, table.path, (1, EVERYTHING_BEFORE), 100)
    end = source.latestOffset(None, source.getDefaultReadLimit())
    assert end is not None
    before = source.deserializeOffset(end.json().replace('"reservoirVersion":2,', '"reservoirVersion":0,'))
    some = java_class(spark, "scala.Option").apply(before)
    assert [each["version"] for each in source.between(some, end)] == [1]

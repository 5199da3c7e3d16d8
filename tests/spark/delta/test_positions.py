"""A position in the log of a table means the same to a stream, to a rebuild and to a new checkpoint."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.delta.checkpoints import Checkpoint, Position
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.hadoop import session_files
from schemas import PUBLICATIONS
from state.units import EPOCH

TEN = range(10)


def filled(spark: SparkSession, folder: str) -> Warehouse:
    """A warehouse with one table of three commits, of one, four and five files; a row each."""
    warehouse = Warehouse(folder, spark)
    for first, end in ((0, 1), (1, 5), (5, 10)):
        rows = spark.range(first, end, numPartitions=end - first).selectExpr(
            "id AS batch_id", "timestamp_millis(0) AS committed_at", "id AS count",
            "timestamp_millis(0) AS first_due", "timestamp_millis(0) AS last_due",
            "CAST(NULL AS TIMESTAMP) AS job_started_at",
        )  # fmt: skip
        rows.write.format("delta").mode("append").save(warehouse.path(PUBLICATIONS))
    return warehouse


def taken(stream: DataFrame, checkpoint: str) -> list[set[int]]:
    """What each batch of a stream holds."""
    batches: list[set[int]] = []

    def note(rows: DataFrame, _batch_id: int) -> None:
        batches.append({row["batch_id"] for row in rows.collect()})

    query: StreamingQuery = stream.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
    query.processAllAvailable()
    query.stop()
    return batches


def test_files_between_two_positions_are_those_of_the_batch(spark: SparkSession, folder: str) -> None:
    """Delta's index is the place of a file in its commit: a batch that is read again from the log is the same batch."""
    warehouse = filled(spark, folder)
    batches = taken(warehouse.follow(PUBLICATIONS, 0, 3), f"{folder}/first")
    checkpoint = Checkpoint(session_files(spark), f"{folder}/first")
    assert set().union(*batches) == set(TEN)
    assert len(batches) >= len(TEN) // 3
    inside = 0
    for number, batch in enumerate(batches):
        begin, end = checkpoint.start(number), checkpoint.position(number)
        again = warehouse.between(PUBLICATIONS, begin.offset, end.offset).collect()
        assert {row["batch_id"] for row in again} == batch
        inside += 0 <= end.index < 3
    assert inside, "no batch ended inside a version"
    middle = checkpoint.position(1)
    rest = taken(warehouse.follow(PUBLICATIONS, middle, 100), f"{folder}/second")
    assert set().union(*rest) == set(TEN) - batches[0] - batches[1]


def test_a_stream_may_begin_at_the_end_of_its_table(spark: SparkSession, folder: str) -> None:
    """A version that does not exist yet cannot be named to Delta; the stream begins there all the same."""
    warehouse = filled(spark, folder)
    end = Position(EPOCH, 3, -1)
    stream = warehouse.follow(PUBLICATIONS, end, 100)
    assert set().union(*taken(stream, f"{folder}/end")) == set()
    rows = spark.read.format("delta").load(warehouse.path(PUBLICATIONS)).limit(1)
    rows.write.format("delta").mode("append").save(warehouse.path(PUBLICATIONS))
    assert len(set().union(*taken(warehouse.follow(PUBLICATIONS, end, 100), f"{folder}/end"))) == 1

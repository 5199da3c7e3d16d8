"""Rows go to the task that their part says."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta.writing.numbering import key_of_each


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 64])
def test_spark_sends_the_number_of_a_task_to_that_task(spark: SparkSession, tasks: int) -> None:
    """A number of a row counts from its task: one in another task would be numbered like somebody else."""
    rows = spark.createDataFrame(list(enumerate(key_of_each(tasks))), "task int, number int")
    placed = rows.repartition(tasks, "number").select("task", F.spark_partition_id().alias("found")).collect()
    assert sorted((row["task"], row["found"]) for row in placed) == [(task, task) for task in range(tasks)]

"""Part two: a year of reminders and follow-ups under the virtual clock, checked, drawn and asked about."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from jobs.commands.replay import read, replay_with_bar
from jobs.demo import check
from jobs.demo.flights import FOLLOW_UPS, REMINDERS, Flights, messages, schedule
from jobs.demo.questions import QUESTIONS, answer
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table
from pipeline.service.replay import ReplayClock
from schemas import DELIVERIES, MESSAGES

_DAY_MS, _MINUTE_MS = 86_400_000, 60_000
_FIRST, _LAST = pd.Timestamp("2013-01-01", tz="UTC"), pd.Timestamp("2014-01-02", tz="UTC")


def prepare(folder: Path, data: Flights) -> Path:
    """Write the messages of the flights as Parquet; give the file."""
    file = folder / "flights.parquet"
    pq.write_table(messages(schedule(data)), file)
    return file


def play(spark: SparkSession, root: str, source: Path, step_ms: int) -> None:
    """Replay the year into a new warehouse.

    Raises:
        StageFailed: a stage failed.
    """
    # State is held by segments of due time. A step releases days at once, so a day is the span to hold it by.
    create_all(root, segment_ms=_DAY_MS)
    for topic, subscription in ((REMINDERS, "push"), (FOLLOW_UPS, "survey")):
        subscribe(root, Subscription(topic, subscription, tick_ms=_MINUTE_MS))
    course = ReplayClock(int(_FIRST.timestamp() * 1_000), int(_LAST.timestamp() * 1_000), step_ms)
    replay_with_bar(spark, root, read(spark, str(source)), course)


def verdict(root: str, data: Flights) -> check.Verdict:
    """Compare the tables with what the flights call for."""
    rows = _columns(open_table(root, DELIVERIES), check.DELIVERIES)
    called_for = check.expected(data.flights, data.airports)
    return check.verdict(called_for, open_table(root, MESSAGES).count(), rows)


def ask(spark: SparkSession, root: str, echo: Callable[[str], None]) -> None:
    """Print questions, their SQL, and the answers."""
    for question in QUESTIONS:
        echo(f"\n{question.text}\n{question.sql}")
        for text in answer(spark, root, question):
            echo(f"  {text}")


def due_times(root: str) -> pd.Series:
    """The due time of every message in the log."""
    return _columns(open_table(root, MESSAGES), ["due_time"])["due_time"]


def _columns(table: DeltaTable, names: list[str]) -> pd.DataFrame:
    found = QueryBuilder().register("t", table).execute(f"SELECT {', '.join(names)} FROM t")  # noqa: S608 - our names
    frame: pd.DataFrame = pa.RecordBatchReader.from_stream(found).read_all().to_pandas()
    return frame

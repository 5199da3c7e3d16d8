"""Part two: a year of reminders and follow-ups under the virtual clock, checked, drawn and asked about."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.commands.replay import read, replay_with_bar
from jobs.demo import briefing, check, storm
from jobs.demo.flights import FOLLOW_UPS, REMINDERS, Flights, messages, schedule
from jobs.demo.questions import QUESTIONS, answer
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import arrow_of, open_table
from pipeline.service.replay import ReplayClock
from schemas import DELIVERIES, MESSAGES

_DAY_MS, _MINUTE_MS = 86_400_000, 60_000
# With the default step the eve of the storm is an instant.
_FIRST, _LAST = pd.Timestamp("2012-12-28", tz="UTC"), pd.Timestamp("2014-01-02", tz="UTC")


def prepare(folder: Path, data: Flights) -> Path:
    """Write the messages of the flights as Parquet; give the file."""
    file = folder / "flights.parquet"
    pq.write_table(messages(schedule(data)), file)
    return file


def play(spark: SparkSession, root: str, source: Path, step_ms: int) -> storm.Storm:
    """Replay the year into a new warehouse; give what was commanded on the eve of the storm.

    Raises:
        StageFailed: a stage failed.
    """
    # State is held by segments of due time. A step releases days at once, so a day is the span to hold it by.
    create_all(root, segment_ms=_DAY_MS)
    for topic, subscription in ((REMINDERS, "push"), (FOLLOW_UPS, "survey")):
        subscribe(root, Subscription(topic, subscription, tick_ms=_MINUTE_MS))
    briefing.begin(root)
    course = ReplayClock(int(_FIRST.timestamp() * 1_000), int(_LAST.timestamp() * 1_000), step_ms)
    eve = max(instant for instant in course if instant <= storm.EVE_MS)
    announced: list[storm.Storm] = []

    def look(instant: int) -> bool:
        if instant == eve:
            announced.append(storm.announce(root))
        return instant == eve

    replay_with_bar(spark, root, read(spark, str(source)), course, on_instant=look)
    return announced[0]


def verdict(root: str, data: Flights) -> check.Verdict:
    """Compare the tables with what the flights call for."""
    accepted = len(_columns(open_table(root, MESSAGES), ["topic"]))
    rows = _columns(open_table(root, DELIVERIES), check.DELIVERIES)
    return check.verdict(check.expected(data.flights, data.airports), accepted, rows)


def recurred(root: str) -> briefing.Recurred:
    """What came by schedules, beside what clocks call for."""
    return briefing.recurred(root, _FIRST.to_pydatetime(), _LAST.to_pydatetime())


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
    """Columns of the messages of flights."""
    text = f"SELECT {', '.join(names)} FROM t WHERE topic IN ('{REMINDERS}', '{FOLLOW_UPS}')"  # noqa: S608 - our names
    frame: pd.DataFrame = arrow_of(text, t=table).to_pandas()
    return frame

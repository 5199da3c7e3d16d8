"""Questions that a user would ask of the tables, in SQL that any engine reading Delta could run."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from schemas import DELIVERIES, MESSAGES


@dataclass(frozen=True)
class Question:
    """A question in words, and in SQL over the views of `TABLES`."""

    text: str
    sql: str


TABLES = (MESSAGES, DELIVERIES)
QUESTIONS = (
    Question(
        "What became of the reminders of 9 February, the day of the storm? What was booked later stayed.",
        """SELECT m.properties['airline'] AS airline, count(*) AS reminders,
       count_if(d.due_time >= m.due_time + INTERVAL 2 HOURS) AS two_hours_later,
       count_if(d.due_time < m.due_time + INTERVAL 2 HOURS) AS as_planned
FROM messages m
JOIN deliveries d ON d.topic = m.topic AND d.ledger_id = m.ledger_id AND d.entry_id = m.entry_id
WHERE m.topic = 'reminders' AND m.due_time >= '2013-02-09 05:00' AND m.due_time < '2013-02-10 05:00'
GROUP BY 1 ORDER BY reminders DESC, airline LIMIT 5""",
    ),
    Question(
        "What was waiting on the first of July, and when was the next of it due?",
        """SELECT topic, count(*) AS waiting, min(due_time) AS next_due
FROM messages
WHERE publish_time < '2013-07-01' AND due_time >= '2013-07-01'
GROUP BY topic ORDER BY topic""",
    ),
    Question(
        "Which hours of the year carried most?",
        """SELECT date_trunc('HOUR', from_utc_timestamp(due_time, 'America/New_York')) AS hour_in_new_york,
       count(*) AS due
FROM messages
GROUP BY 1 ORDER BY due DESC, hour_in_new_york LIMIT 3""",
    ),
    Question(
        "Did the night the clocks went forward disturb the first reminders of 10 March?",
        """SELECT message_key, from_utc_timestamp(deliver_at, 'America/New_York') AS wanted_in_new_york,
       deliver_at AS wanted_utc, due_time AS bucket_utc
FROM deliveries
WHERE topic = 'reminders' AND deliver_at >= '2013-03-10 06:00' AND deliver_at < '2013-03-11'
ORDER BY deliver_at, batch_id, sequence LIMIT 3""",
    ),
)


def answer(spark: SparkSession, root: str, question: Question) -> list[str]:
    """The answer as lines of text, the names of the columns first."""
    for table in TABLES:
        spark.read.format("delta").load(f"{root}/{table.name}").createOrReplaceTempView(table.name)
    frame = spark.sql(question.sql)
    rows = [frame.columns, *([str(value) for value in row] for row in frame.collect())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

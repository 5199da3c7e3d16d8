"""`delayline replay`: messages of a file or table, under the virtual clock."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from jobs.commands.jsonform import json_line
from jobs.commands.run import Counts, StageFailed, counts
from jobs.commands.sizes import sized
from jobs.commands.spark import session
from jobs.progress import progress
from pipeline.client.create import create_all
from pipeline.config.errors import PipelineError
from pipeline.config.profiles import Profile
from pipeline.config.settings import Settings, VirtualClock
from pipeline.config.spelling import iso_text
from pipeline.delta.warehouse import Warehouse
from pipeline.service.replay import ReplayClock, replay
from pipeline.storage.files import Files
from schemas import INBOX

FORMS = "a Delta table (a folder with _delta_log), Parquet (.parquet), or JSON lines (.json, .jsonl; payload as text)"


class BadInput(PipelineError):
    """The input of a replay cannot be read as rows of the inbox. Correct it, or convert it."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} = {value!r}, allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


@dataclass(frozen=True)
class Choices:
    """What the command line says."""

    root: str
    source: str | None
    course: ReplayClock
    profile: Profile
    as_json: bool


def run(choices: Choices, echo: Callable[[str], None], note: Callable[[str], None]) -> None:
    """Replay, and show how far it is. What comes out is echoed, what was chosen noted.

    Raises:
        BadInput: the input is of another form, or has columns that the inbox lacks.
        StageFailed: a stage ended with an error; the same command goes on where it was.
    """
    if choices.source is not None:
        form_of(choices.source)
    create_all(choices.root)
    profile = replace(choices.profile, options=replace(choices.profile.options, clock=VirtualClock()))
    start = time.monotonic()
    paths = (choices.root, *filter(None, [choices.source]))
    with session("delayline replay", profile.machine, *paths) as spark:
        profile = sized(Warehouse(choices.root, spark), profile, note)
        nothing = spark.createDataFrame([], INBOX.schema)
        messages = nothing if choices.source is None else read(spark, choices.source)
        replay_with_bar(spark, choices.root, messages, choices.course, profile.options.settings)
    done, took = counts(choices.root), time.monotonic() - start
    echo(as_json(done, choices.course, took) if choices.as_json else f"{done}  in {took:.0f} s")


def replay_with_bar(
    spark: SparkSession,
    root: str,
    messages: DataFrame,
    course: ReplayClock,
    settings: Settings | None = None,
    on_instant: Callable[[int], bool | None] | None = None,
) -> None:
    """Replay messages over a course, showing the instant that was reached, which `on_instant` is told (as `replay`).

    Raises:
        StageFailed: a stage ended with an error.
    """
    with progress() as on_step:
        numbers = count(1)

        def reached(instant: int) -> bool:
            on_step(iso_text(instant)[:16], next(numbers), len(course))
            return on_instant is not None and bool(on_instant(instant))

        try:
            replay(Warehouse(root, spark), messages, course, settings=settings, on_instant=reached)
        except PipelineError:
            raise
        except Exception as error:
            raise StageFailed(str(error)) from error


def read(spark: SparkSession, source: str) -> DataFrame:
    """Rows of the inbox from a file or table; columns that it lacks are NULL.

    Raises:
        BadInput: it has columns that the inbox lacks, or no topic; or it is of another form.
    """
    frame = _READERS[form_of(source)](spark, source)
    known = INBOX.columns.names
    for name in frame.columns:
        if name not in known:
            raise BadInput("column", name, ", ".join(known))
    if "topic" not in frame.columns:
        raise BadInput("columns", ", ".join(frame.columns), "topic among them")
    empty = spark.createDataFrame([], INBOX.schema)
    whole = empty.unionByName(frame, allowMissingColumns=True)
    return whole.select(*(whole[field.name].cast(field.dataType) for field in INBOX.schema.fields))


def form_of(source: str) -> str:
    """The form of an input: delta, parquet or json.

    Raises:
        BadInput: another one, or nothing there.
    """
    if Files().exists(f"{source}/_delta_log"):
        return "delta"
    form = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}.get(Path(source).suffix)
    if form is None or not Files().exists(source):
        raise BadInput("input", source, FORMS)
    return form


def _json(spark: SparkSession, source: str) -> DataFrame:
    """With the names that the file holds, so that a misspelt one is seen, and the types that the inbox has."""
    names = spark.read.json(source).columns
    known = {field.name: field for field in INBOX.schema.fields} | {"payload": StructField("payload", StringType())}
    fields = [known.get(name, StructField(name, StringType())) for name in names]
    return spark.read.schema(StructType(fields)).option("mode", "FAILFAST").json(source)


_READERS: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "delta": lambda spark, source: spark.read.format("delta").load(source),
    "parquet": lambda spark, source: spark.read.parquet(source),
    "json": _json,
}


def as_json(done: Counts, course: ReplayClock, took: float) -> str:
    """The end of a replay for scripts."""
    return json_line({**asdict(done), "instants": len(course), "took_s": round(took, 1)})

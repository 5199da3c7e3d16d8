"""Schedule: encoded positions wait in streaming state, and leave as runs when they are due.

The function is called with a key's rows, or when its alarm fires; either way it releases all that is due at the
batch's instant. A call costs milliseconds whatever is in it, so many subscriptions share a key; those of a topic that
listen alike share an index, too. The function answers with one row for each index of which something is due, the runs
packed in a binary column, because a million positions as pandas rows take seconds; they become rows for each
subscription in `Unpacker`, by whole arrays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from pipeline import group_state
from pipeline.arrow import arrow_schema
from pipeline.local import IntArray
from pipeline.progress import Log
from pipeline.session import PARTITIONS
from pipeline.settings import HOUR_MS, Settings
from pipeline.sinks import Observer, Sink
from pipeline.tables import Warehouse
from schemas import REDELIVERY, REJECTED_SCHEDULE, STATE_ROW
from state import DelaylineError, IndexGroup, Runs

STAGE = "schedule"
REBUILD = "rebuild"
"""The kind of the rows with which a rebuild fills a new checkpoint; their `batch_id` is the rebuild's number."""
KEY = ("shard", "segment_ms")
RELEASE = "owner string, segment_ms bigint, tick_ms bigint, instant bigint, runs binary, error string, chunk binary"
_COLUMNS = [field.split()[0] for field in RELEASE.split(", ")]
_SENT = ("owner", "tick_ms", "chunk")
_SAME = ("topic", "subscription", "life", "tick_ms", "instant")
"""What all runs of an answer have in common."""
_ALIKE = 64
"""About so many subscriptions share an index at most: whoever comes or goes gives the others another owner."""
_LISTENERS = """inline(transform(sequence(1, size(owners) - 2, 2), place ->
    named_struct('topic', owners[0], 'subscription', owners[place], 'life', cast(owners[place + 1] as bigint))
))"""
"""The subscriptions that share an index, a row each; `owners` is the array that the name of its owner holds."""
_NOBODY = '["","","0"]'
"""Owner of an answer that is about a whole state."""
_SHARDS_A_STORE = 4
"""Enough that stores are filled alike, and few: a call costs five milliseconds, whatever is in it (decision 0018)."""
_RUN = arrow_schema(REDELIVERY.schema)
_RUN_BYTES = 32
"""Bytes of a run in an answer."""
_ROW_BYTES, _MOST_BYTES = 100, 128 << 20
"""Bytes of a row of `redelivery` beside its texts, and of the rows that are made at once."""
Key = tuple[int, int]
"""Shard, and the segment's start in ms: the `KEY` of a state."""
Sent = tuple[str, int, bytes]
"""Owner, tick in ms, and an encoded chunk for it."""
Answer = list[Any]
"""A row of `RELEASE`."""
Frames = Iterable[pd.DataFrame]


def shards(spark: SparkSession) -> int:
    """So many shards share the indexes. Another number at another start does no harm: a state keeps its alarm."""
    return _SHARDS_A_STORE * int(str(spark.conf.get(PARTITIONS)))


def releases(segments: DataFrame, ticks: DataFrame, count: int) -> DataFrame:
    """The stream of releases: a row for each index of which something is due, from `count` shards.

    Positions carry no event time, so Spark never drops them as late; ticks carry nothing else. One watermark, after
    the union. The filter behind it names the event time: one that did not would be pushed below the watermark, and the
    clock would stand.
    """
    rows = addressed(segments, count).withColumn("event_time", F.lit(None).cast("timestamp"))
    instants = ticks.select(F.timestamp_millis("instant").alias("event_time"))
    both = instants.unionByName(rows, allowMissingColumns=True).withWatermark("event_time", "0 seconds")
    positions = both.where("event_time IS NULL").groupBy(*KEY)
    timeout = GroupStateTimeout.EventTimeTimeout
    return positions.applyInPandasWithState(release, RELEASE, STATE_ROW, "append", timeout)


def of_rebuild(segments: DataFrame, rebuilt: int | None) -> DataFrame:
    """Rows of `segments` less those of other rebuilds: each is for one checkpoint, and repeats what others had."""
    regular = F.col("kind") != REBUILD
    return segments.where(regular if rebuilt is None else regular | (F.col("batch_id") == rebuilt))


def addressed(segments: DataFrame, count: int) -> DataFrame:
    """Chunks of `segments`, once for all subscriptions that listen alike, with their shard of so many.

    Alike listen subscriptions that a row is for and that have one tick: they get the same positions at the same
    instants. The name of such an owner is JSON of the topic, and of name and life of each. Only Spark reads it.
    Nothing is nullable: Spark hands nullable longs to pandas as floats, which lose the last digits of large numbers.
    """
    zero, nothing = F.lit(0).cast("bigint"), F.lit("")
    parts = F.expr(f"shiftleft(1, cast(ceil(log2(greatest(1, size(subscriptions) / {_ALIKE}))) as int))")

    def listener(each: Column) -> Column:
        tick, part = F.coalesce(each["tick_ms"], zero), F.pmod(F.hash(each["name"]), parts)
        party = F.struct(tick.alias("tick_ms"), part.alias("part"))
        name, life = F.coalesce(each["name"], nothing), F.coalesce(each["life"], zero)
        return F.struct(party.alias("party"), name.alias("name"), life.alias("life"))

    heard = segments.where("kind <> 'marker'")
    rows = heard.select("*", F.array_sort(F.transform("subscriptions", listener)).alias("listeners"))
    rows = rows.select("*", F.explode(F.array_distinct(F.col("listeners.party"))).alias("party"))
    alike = F.filter("listeners", lambda each: each["party"] == F.col("party"))
    names = F.flatten(F.transform(alike, lambda each: F.array(each["name"], each["life"].cast("string"))))
    owner = F.to_json(F.concat(F.array(F.coalesce("topic", nothing)), names))
    shard = F.pmod(F.hash("topic", "party"), F.lit(count)).cast("bigint")
    return rows.select(
        F.coalesce(shard, zero).alias("shard"),
        F.coalesce(owner, F.lit(_NOBODY)).alias("owner"),
        F.coalesce(F.unix_millis("segment_start"), zero).alias("segment_ms"),
        "party.tick_ms",
        "chunk",
    )


def release(key: Key, frames: Frames, state: GroupState) -> Iterator[pd.DataFrame]:
    """Take in the chunks of a key, let go what is due. What goes wrong becomes a row: an exception would come back."""
    instant = group_state.watermark_ms(state)
    sent: list[Sent] = []
    try:
        if not state.hasTimedOut:
            sent = [_sent(*row) for frame in frames for row in zip(*(frame[name] for name in _SENT), strict=True)]
        answers = _release(key, instant, sent, state)
    except Exception as error:  # noqa: BLE001 - whatever it is, it would come back with every replay
        group_state.keep(state, instant + HOUR_MS)
        lost: list[tuple[str, bytes | None]] = [(owner, chunk) for owner, _, chunk in sent] or [(_NOBODY, None)]
        answers = [_failure(key, owner, instant, error, chunk) for owner, chunk in lost]
    if answers:
        yield pd.DataFrame(answers, columns=_COLUMNS)


def _release(key: Key, instant: int, sent: list[Sent], state: GroupState) -> list[Answer]:
    """Append, pop, save. The state is touched last: what fails before leaves it as it was."""
    pending = group_state.load(state)
    refused = list(_append(key, instant, pending, sent))
    # Before the first tick there is no instant at which anything could be released, not even what was due in 1970.
    answers = list(_pop(key, instant, pending)) if instant else []
    group_state.save(state, pending)
    return [*answers, *refused]


def _append(key: Key, instant: int, pending: IndexGroup, sent: list[Sent]) -> Iterator[Answer]:
    """Append chunks; give a row for each that is refused, with the chunk, so that nothing is lost."""
    for owner, tick, chunk in sent:
        try:
            pending.append_chunk(owner.encode(), tick, chunk)
        except DelaylineError as error:
            yield _failure(key, owner, instant, error, chunk)


def _pop(key: Key, instant: int, pending: IndexGroup) -> Iterator[Answer]:
    """A row for each index of which something is due. One that cannot be read is kept, and looked at again."""
    for name in pending.due(instant):
        owner, tick = name.decode(), pending.tick_ms(name)
        try:
            runs = pending.pop_due_runs(name, instant)
        except DelaylineError as error:
            pending.put_off(name, instant + HOUR_MS)
            yield _failure(key, owner, instant, error, None)
        else:
            if len(runs):
                yield [owner, key[1], tick, instant, pack(runs), None, None]


def _failure(key: Key, owner: str, instant: int, error: Exception, chunk: bytes | None) -> Answer:
    """What is wrong, and the remedy; `failures` says with whose positions."""
    reason = f"{type(error).__name__}: {error}; rebuild the schedule from the tables"
    return [owner, key[1], 0, instant, b"", reason, chunk]


def _sent(owner: str, tick: Any, chunk: Any) -> Sent:  # noqa: ANN401 - as pandas hands it over
    return owner, int(tick), bytes(chunk)


def pack(runs: Runs) -> bytes:
    """Runs as four int64 columns, one after the other."""
    columns = (runs.ledger_ids, runs.first_entries, runs.last_entries, runs.due)
    return np.concatenate([np.asarray(column, dtype="<i8") for column in columns]).tobytes()


@dataclass(frozen=True)
class Unpacker:
    """Answers to rows of `redelivery`, one for each run, by whole arrays. `batch` is which batch of the schedule."""

    batch: int

    def __call__(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `_SAME` and `runs`, for `mapInArrow`."""
        for rows in answers:
            packed = [np.frombuffer(runs, dtype="<i8").reshape(4, -1) for runs in rows.column("runs").to_pylist()]
            texts = pc.add(pc.binary_length(rows.column("topic")), pc.binary_length(rows.column("subscription")))
            lengths = zip(packed, texts.to_pylist(), strict=True)
            sizes = [(each.shape[1], _ROW_BYTES + length) for each, length in lengths]
            for first, last in _few(sizes):
                answer = np.repeat(np.arange(first, last), [count for count, _ in sizes[first:last]])
                runs = np.concatenate(packed[first:last], axis=1)
                # An answer of its own may be too much at once.
                step = max(1, _MOST_BYTES // max(size for _, size in sizes[first:last]))
                for start in range(0, len(answer), step):
                    some = pa.array(answer[start : start + step])
                    same = {name: rows.column(name).take(some) for name in _SAME}
                    yield self._rows(same, *runs[:, start : start + step])

    def _rows(
        self, same: dict[str, pa.Array], ledgers: IntArray, firsts: IntArray, lasts: IntArray, dues: IntArray
    ) -> pa.RecordBatch:
        due, count = pa.array(dues * 1_000), len(dues)
        told = same | {
            "ledger_id": pa.array(ledgers),
            "first_entry": pa.array(firsts),
            "last_entry": pa.array(lasts),
            "due_time": due,
            "message_due": due,
            "released_at": pc.multiply(same["instant"], 1_000),
            "redelivery_count": pa.repeat(0, count),
            "cause": pa.repeat("due", count),
            "batch_id": pa.repeat(self.batch, count),
        }
        return pa.RecordBatch.from_arrays([told[field.name].cast(field.type) for field in _RUN], schema=_RUN)


def _few(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Answers, from one to another, whose runs can be held at once; `sizes` are counts of runs, and bytes of one."""
    first, held = 0, 0
    for number, (count, size) in enumerate(sizes):
        if held and held + count * size > _MOST_BYTES:
            yield first, number
            first, held = number, 0
        held += count * size
    if held:
        yield first, len(sizes)


class Schedule:
    """The body of the schedule query: call it with each batch of releases."""

    def __init__(
        self, spark: SparkSession, warehouse: Warehouse, checkpoint: Log, settings: Settings, observe: Observer
    ) -> None:
        """Look up once what the tables hold."""
        self._checkpoint, self._settings, self._observe = checkpoint, settings, observe
        tables = (REDELIVERY, REJECTED_SCHEDULE)
        self.sinks = {t.name: Sink(spark, warehouse, t, STAGE, checkpoint.wrote) for t in tables}

    def __call__(self, released: DataFrame, batch_id: int) -> None:
        """Write one batch. The stateful function runs in the first job; everything after reads what it gave."""
        owner = self._checkpoint.owner or ""
        begin, end = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
        note = {**end.as_dict(), "begin": begin.offset}
        released.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            size, failed = _count(released)
            if size or failed:
                self._observe("schedule.counted", batch_id)
            if failed:
                self._append("rejected_schedule", failures(released, batch_id), owner, batch_id, note)
            if size:
                few = size <= self._settings.driver_rows * _RUN_BYTES
                rows = local_run_rows(released, batch_id) if few else run_rows(released, batch_id)
                self._append("redelivery", rows, owner, batch_id, note)
        finally:
            released.unpersist()

    def _append(
        self, table: str, rows: DataFrame | pa.Table, owner: str, batch_id: int, note: Mapping[str, Any]
    ) -> None:
        self.sinks[table].append(rows, owner, batch_id, note)
        self._observe(f"schedule.{table}", batch_id)


def _count(released: DataFrame) -> tuple[int, int]:
    """The job that runs the stateful function, over all partitions: bytes of runs for all who get them, and errors."""
    listeners = F.coalesce(F.expr("(json_array_length(owner) - 1) div 2"), F.lit(1))
    size = F.coalesce(F.sum(F.octet_length("runs") * listeners), F.lit(0))
    row = released.agg(size, F.count_if(F.col("error").isNotNull())).collect()[0]
    return row[0], row[1]


def run_rows(released: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `redelivery`."""
    return _packed(released).mapInArrow(Unpacker(batch_id).__call__, REDELIVERY.schema)


def local_run_rows(released: DataFrame, batch_id: int) -> pa.Table:
    """The same in the driver."""
    return pa.Table.from_batches(Unpacker(batch_id)(iter(_packed(released).toArrow().to_batches())), _RUN)


def _packed(released: DataFrame) -> DataFrame:
    """Answers that hold runs, for each subscription."""
    return _each(released.where(F.octet_length("runs") > 0)).select(*_SAME, "runs")


def _each(released: DataFrame) -> DataFrame:
    """Answers, once for each subscription that shares the index, which `topic`, `subscription` and `life` name."""
    # A name that cannot be read would be nobody's, and what it was given would be gone without a word.
    names = F.from_json("owner", "array<string>", {"mode": "FAILFAST"})
    return released.select("*", names.alias("owners")).select("*", F.expr(_LISTENERS)).drop("owner", "owners")


def failures(released: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `rejected_schedule`."""
    reason = F.format_string("('%s', '%s', %d, %d): %s", "topic", "subscription", "life", "segment_ms", "error")
    return _each(released.where("error IS NOT NULL")).select(
        reason.alias("reason"),
        F.timestamp_millis("instant").alias("rejected_at"),
        F.lit(batch_id).alias("batch_id"),
        "topic",
        "subscription",
        F.timestamp_millis("segment_ms").alias("segment_start"),
        "chunk",
    )

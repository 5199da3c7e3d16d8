"""Whether all between two marks of what is settled was released: by whole arrays in this process, or by Spark.

Compared are number and sum of the entries of each ledger, which runs give without being taken apart.
"""

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.routes import SIZE, NotInDriver
from pipeline.delta.logs.filestats import first_ms
from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.reading.messages import Bounds, MessageLog, message_groups
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import longs, rounds
from pipeline.storage.parquet import row_groups
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.settled import SettledMark
from schemas import MESSAGES, REDELIVERY, ROUND, Table

_MOST_ROWS = 20_000_000
"""Of messages that are looked at here; a second or two of a processor, and a few row groups are held."""
_KEYS = ["topic", "subscription", "life", "ledger_id"]
_LISTENERS = pa.schema(
    [("topic", pa.string()), ("subscription", pa.string())]
    + [(name, pa.int64()) for name in ("life", "since", "from_entry")]
)
_MESSAGE, _RUN = ("topic", "ledger_id", "entry_id", "due_time"), (*_KEYS, "first_entry", "last_entry", "message_due")
_HEARD = "ledger_id > since OR (ledger_id = since AND entry_id >= from_entry)"


def unreleased(
    warehouse: Warehouse,
    lives: Mapping[Name, Incarnation],
    mark: SettledMark,
    wanted: SettledMark,
    upto: int,
) -> int:
    """In how many ledgers, counted for each subscription, released and addressed positions differ between two marks.

    Released is what was committed before a version of `redelivery`.
    """
    rows = [(*name, life.number, life.since, life.entry) for name, life in sorted(lives.items())]
    listeners = pa.Table.from_pylist([dict(zip(_LISTENERS.names, row, strict=True)) for row in rows], _LISTENERS)
    last = max(0, upto - 1)
    try:
        sent = _messages(warehouse, mark, wanted)
        return differing(listeners, sent, _releases(warehouse, mark, wanted, last))
    except NotInDriver:
        return _by_spark(warehouse, listeners, mark, wanted, last)


def differing(listeners: pa.Table, messages: Iterable[pa.Table], runs: Iterable[pa.Table]) -> int:
    """In how many ledgers of listeners messages and runs differ, in number or sum of their entries.

    Args:
        listeners: topic, subscription, life, and the first position that each hears.
        messages: topic, ledger and entry.
        runs: topic, subscription, life, ledger, first and last entry.
    """
    heard = _addressed(listeners, messages).rename_columns([*_KEYS, "n", "s"])
    given = [pa.schema([*(_LISTENERS.field(name) for name in _KEYS[:3]), *_longs("ledger_id", "n", "s")]).empty_table()]
    for few in runs:
        first, last = longs(few, "first_entry"), longs(few, "last_entry")
        length, twice = pa.array(last - first + 1), pa.array((first + last) * (last - first + 1))
        given.append(_summed(few.select(_KEYS).append_column("n", length).append_column("s", twice), _KEYS, "sum"))
    released = _summed(pa.concat_tables(given), _KEYS, "sum").rename_columns([*_KEYS, "n2", "s2"])
    mine = released.join(listeners, _KEYS[:3], join_type="left semi")
    both = heard.join(mine, _KEYS, join_type="full outer")
    alike = pc.and_(pc.equal(both["n"], both["n2"]), pc.equal(pc.multiply(both["s"], 2), both["s2"]))
    return int(pc.sum(pc.invert(pc.fill_null(alike, False))).as_py() or 0)  # noqa: FBT003 - of nobody's, or of nothing


def _addressed(listeners: pa.Table, messages: Iterable[pa.Table]) -> pa.Table:
    """Number and sum of the entries that each listener hears of each ledger."""
    begun = pc.unique(listeners["since"])
    empty = pa.schema([_LISTENERS.field("topic"), *_longs("ledger_id", "entry_id")]).empty_table()
    whole, edge = [_summed(empty, ["topic", "ledger_id"], "entries")], [empty]
    for few in messages:
        whole.append(_summed(few, ["topic", "ledger_id"], "entries"))
        edge.append(few.filter(pc.is_in(few["ledger_id"], begun)))
    all_of = _summed(pa.concat_tables(whole), ["topic", "ledger_id"], "sum").join(listeners, "topic", join_type="inner")
    later = all_of.filter(pc.greater(all_of["ledger_id"], all_of["since"])).select([*_KEYS, "n", "s"])
    first = pa.concat_tables(edge).join(listeners, "topic", join_type="inner")
    inside = pc.greater_equal(first["entry_id"], first["from_entry"])
    first = first.filter(pc.and_(pc.equal(first["ledger_id"], first["since"]), inside))
    return pa.concat_tables([later, _summed(first, _KEYS, "entries").select([*_KEYS, "n", "s"])])


def _summed(rows: pa.Table, keys: list[str], what: str) -> pa.Table:
    """Rows by their keys: `n` and `s` added up, or number and sum of the entries as those."""
    wanted = [("n", "sum"), ("s", "sum")] if what == "sum" else [("entry_id", "count"), ("entry_id", "sum")]
    found = rows.group_by(keys).aggregate(wanted)
    columns = [found[f"{name}_{how}"].cast(pa.int64()) for name, how in wanted]
    return pa.Table.from_arrays([*(found[key] for key in keys), *columns], names=[*keys, "n", "s"])


def _longs(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.int64()) for name in names]


def _messages(warehouse: Warehouse, mark: SettledMark, wanted: SettledMark) -> Iterator[pa.Table]:
    """What was sent between two marks.

    Raises:
        NotInDriver: only Spark reaches it, or it is too much.
    """
    log, last = MessageLog(warehouse), wanted.ledger - 1
    later = Bounds(last_ledger=last, first_due=mark.due_ms, last_due=wanted.due_ms)
    bounds = later, Bounds(first_ledger=mark.ledger, last_ledger=last, last_due=wanted.due_ms)
    if sum(file.rows for file in log.files(bounds)) > _MOST_ROWS:
        raise NotInDriver(SIZE)
    for group in message_groups(log, *bounds):
        rows = group.read(_MESSAGE)
        yield rows.filter(_between(rows, "due_time", mark, wanted)).drop_columns(["due_time"])


def _releases(warehouse: Warehouse, mark: SettledMark, wanted: SettledMark, version: int) -> Iterator[pa.Table]:
    """Runs that were released between two marks for the first time, at a version of `redelivery`.

    Raises:
        NotInDriver: only Spark reaches them.
    """
    files, path = warehouse.files, warehouse.path(REDELIVERY)
    folder, found = files.readable(path), live_files(files, path, version)
    if folder is None or found is None:
        raise NotInDriver
    old = (each for each in found[1] if first_ms(each["stats"], "message_due", 0) <= wanted.due_ms)
    for group in row_groups(REDELIVERY, (f"{folder}/{unquote(each['path'])}" for each in old)):
        rows = group.read((*_RUN, "redelivery_count", "round"))
        first = pa.array(rounds(rows) == 0)
        yield rows.filter(pc.and_(first, _between(rows, "message_due", mark, wanted)))


def _between(rows: pa.Table, due: str, mark: SettledMark, wanted: SettledMark) -> pa.ChunkedArray:
    """Which rows are below the second mark and not below the first one."""
    return pc.and_not(wanted.below(rows, due), mark.below(rows, due))


def _by_spark(warehouse: Warehouse, names: pa.Table, mark: SettledMark, wanted: SettledMark, version: int) -> int:
    """How many are not released of any number of messages, wherever they lie."""
    listeners = F.broadcast(arrow_frame(warehouse.spark, names))

    def between(table: Table, due: str, version: int | None = None) -> DataFrame:
        return warehouse.read(table, version).where(f"{wanted.covers(due)} AND NOT {mark.covers(due)}")

    heard = between(MESSAGES, "due_time").join(listeners, "topic").where(_HEARD)
    addressed = heard.groupBy(*_KEYS)
    runs = between(REDELIVERY, "message_due", version).where(f"{ROUND} = 0")
    released = runs.join(listeners, ["topic", "subscription", "life"], "left_semi").groupBy(*_KEYS)
    length = F.col("last_entry") - F.col("first_entry") + 1
    twice = (F.col("first_entry") + F.col("last_entry")) * length
    one = addressed.agg(F.count("*").alias("n"), F.sum(2 * F.col("entry_id")).alias("s"))
    other = released.agg(F.sum(length).alias("n2"), F.sum(twice).alias("s2"))
    both = one.join(other, [*_KEYS], "full_outer")
    return both.where("NOT (n <=> n2 AND s <=> s2)").count()

"""Positions of subscriptions, counted by ledger and, where the counts differ, one by one.

A count by ledger is the number of entries, their sum and the sum of their squares, modulo 2^64. Runs give it without
being taken apart, so memory grows with ledgers, not with messages. Entries are read of those ledgers only whose counts
differ, a few million at a time.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.deltars import arrow_of
from pipeline.doctor.look import Opened
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.settled import SettledMark
from schemas import ROUND

Keys = tuple[str, ...]
KEYS = ("topic", "subscription", "life", "ledger_id")
AGAIN = (*KEYS, "redelivery_count", "number")
"""Keys of what comes again; `number` is the round."""
CLOSED_KEYS = AGAIN[:-1]
"""Keys of what is settled while it waits to come again, in whatever round."""
FIGURES = ("n", "s", "q")
AT_ONCE = 1_000_000
"""So many positions are held at once, about."""
_SHOWN = 3
_LONG = pa.int64()
_TYPES = {"topic": pa.string(), "subscription": pa.string()}
_WHICH = {KEYS: "redelivery_count = 0", AGAIN: "redelivery_count > 0", CLOSED_KEYS: "true"}
_ENTRIES = "COUNT(*) AS n, SUM(2 * entry_id) AS s, SUM(6 * entry_id * entry_id) AS q"
_PLACES = {True: "first_entry, last_entry", False: "entry_id"}
_RUNS = """
SUM(last_entry - first_entry + 1) AS n,
SUM((first_entry + last_entry) * (last_entry - first_entry + 1)) AS s,
SUM(last_entry * (last_entry + 1) * (2 * last_entry + 1) - (first_entry - 1) * first_entry * (2 * first_entry - 1)) AS q
"""


def ms(column: str) -> str:
    """A column of times in ms UTC, in SQL."""
    return f"arrow_cast({column}, 'Int64') / 1000"


def above(mark: SettledMark, due: str) -> str:
    """Whether a row is above the mark of retention, in SQL; `due` is the column with its due time."""
    return f"NOT ({ms(due)} <= {mark.due_ms} AND ledger_id < {mark.ledger})"


def listening(lives: Mapping[Name, Incarnation]) -> pa.Table:
    """Subscriptions as a table, with the first ledger of each, and the first entry in it."""
    columns = {
        "topic": [topic for topic, _ in lives],
        "subscription": [name for _, name in lives],
        "life": [each.number for each in lives.values()],
        "since": [each.since for each in lives.values()],
        "from_entry": [each.entry for each in lives.values()],
    }
    return pa.table({name: pa.array(values, _TYPES.get(name, _LONG)) for name, values in columns.items()})


def counted(opened: Opened, where: str, *, runs: bool, keys: Keys = KEYS) -> pa.Table:
    """Counts of rows that name subscription, life and position, or a run of positions: first ones, or those `AGAIN`."""
    figures = _RUNS if runs else _ENTRIES
    numbered = f"SELECT {_named(opened, keys)}, {_PLACES[runs]} FROM t WHERE {_WHICH[keys]} AND {where}"  # noqa: S608 - our own words
    names = ", ".join(keys)
    sql = f"SELECT {names}, {figures} FROM ({numbered}) GROUP BY {names}"  # noqa: S608 - as above
    return typed(arrow_of(sql, t=opened.delta))


def taken_apart(opened: Opened, where: str, *, runs: bool, keys: Keys = KEYS) -> pa.Table:
    """The positions of rows that a condition names, each by itself."""
    entry = "unnest(range(first_entry, last_entry + 1)) AS entry_id" if runs else "entry_id"
    sql = f"SELECT {_named(opened, keys)}, {entry} FROM t WHERE {_WHICH[keys]} AND {where}"  # noqa: S608
    return typed(arrow_of(sql, t=opened.delta))


def refused(opened: Opened, where: str, keys: Keys) -> pa.Table:
    """Positions without the life, which rows of `rejected_dispatch` may lack."""
    named = _named(opened, keys).replace("life, ", "")
    sql = f"SELECT {named}, entry_id FROM t WHERE {_WHICH[keys]} AND {where}"  # noqa: S608 - our own words
    return typed(arrow_of(sql, t=opened.delta))


def _named(opened: Opened, keys: Keys) -> str:
    """The keys in SQL. A table of an earlier version of this project has no rounds."""
    names = ", ".join(key for key in keys if key != "number")
    has = any(field.name == "round" for field in opened.delta.schema().fields)
    return names if keys != AGAIN else f"{names}, {ROUND if has else 'redelivery_count'} AS number"


def kept(rows: pa.Table, keys: Keys) -> pa.Table:
    """Of rows of a file those that are counted by some keys, with these."""
    again = pc.greater(rows["redelivery_count"], 0)
    mine = rows.filter(again if keys == AGAIN else pc.invert(again))
    has = "round" in mine.column_names
    number = pc.coalesce(mine["round"], mine["redelivery_count"]) if has else mine["redelivery_count"]
    return mine.append_column("number", number)


def of_runs(runs: pa.Table, keys: Keys = KEYS) -> pa.Table:
    """The positions of runs."""
    firsts, lasts = (runs.column(name).to_numpy() for name in ("first_entry", "last_entry"))
    lengths = lasts - firsts + 1
    run = np.repeat(np.arange(len(lengths)), lengths)
    entries = np.arange(len(run)) - np.repeat(np.cumsum(lengths) - lengths - firsts, lengths)
    return typed(runs.select(list(keys)).take(pa.array(run)).append_column("entry_id", pa.array(entries)))


def entries(rows: pa.Table, keys: Keys = KEYS) -> pa.Table:
    """The positions of rows that are one each."""
    return typed(rows.select([*keys, "entry_id"]))


def typed(rows: pa.Table) -> pa.Table:
    """With plain types: DataFusion gives views of texts, with which nothing can be joined."""
    return rows.cast(pa.schema([(name, _TYPES.get(name, _LONG)) for name in rows.column_names]))


def summed(positions: pa.Table, keys: Keys = KEYS) -> pa.Table:
    """Counts of positions."""
    entry = positions.column("entry_id")
    figures = (_ones(positions), pc.multiply(entry, 2), pc.multiply(pc.multiply(entry, entry), 6))
    columns = {key: positions.column(key) for key in keys} | dict(zip(FIGURES, figures, strict=True))
    return _total(pa.table(columns), FIGURES, keys)


def differing(plus: Sequence[pa.Table], minus: Sequence[pa.Table], keys: Keys = KEYS) -> pa.Table:
    """The keys of which two sides do not have the same positions, by their counts; `held`: how many both have.

    Of what comes `AGAIN` all keys: both sides may have a release twice.
    """
    signed = [_signed(each, 1, keys) for each in plus] + [_signed(each, -1, keys) for each in minus]
    total = _total(pa.concat_tables(signed), (*FIGURES, "held"), keys)
    if keys == AGAIN:
        return total
    differs = [pc.not_equal(total.column(name), 0) for name in FIGURES]
    return total.filter(pc.or_(pc.or_(differs[0], differs[1]), differs[2]))


def portions(keys: pa.Table) -> Iterator[pa.Table]:
    """Keys in portions whose positions can be held at once."""
    start, size = 0, 0
    for row, held in enumerate(keys.column("held").to_pylist()):
        if size and size + held > AT_ONCE:
            yield keys.slice(start, row - start)
            start, size = row, 0
        size += held
    if start < keys.num_rows:
        yield keys.slice(start)


def within(keys: pa.Table) -> str:
    """Whether a row is of one of the ledgers of some keys, in SQL."""
    ledgers = sorted(set(keys.column("ledger_id").to_pylist()))
    return f"ledger_id IN ({', '.join(map(str, ledgers))})"


def only(rows: pa.Table, keys: pa.Table, names: Sequence[str] = KEYS) -> pa.Table:
    """The rows whose values of some columns are among those of other rows."""
    return rows.join(keys.select(list(names)), list(names), join_type="left semi")


def side_by_side(sides: Mapping[str, pa.Table], keys: Keys = KEYS) -> pa.Table:
    """Every position that any side has, with a column for each side: how often it has it."""
    parts = []
    for side, rows in sides.items():
        counts = {each: _ones(rows) if each == side else pc.multiply(_ones(rows), 0) for each in sides}
        parts.append(pa.table({**{name: rows.column(name) for name in (*keys, "entry_id")}, **counts}))
    return _total(pa.concat_tables(parts), tuple(sides), (*keys, "entry_id"))


def described(found: pa.Table) -> Iterator[tuple[str, str]]:
    """Positions for people, by topic and subscription: how many, and the first of them."""
    names = pc.binary_join_element_wise(found["topic"], found["subscription"], "/")
    for name in sorted(pc.unique(names).to_pylist()):
        mine = found.filter(pc.equal(names, name))
        first = mine.select(["ledger_id", "entry_id"]).sort_by([("ledger_id", "ascending"), ("entry_id", "ascending")])
        some = ", ".join(f"({row['ledger_id']}, {row['entry_id']})" for row in first.slice(0, _SHOWN).to_pylist())
        more = ", ..." if mine.num_rows > _SHOWN else ""
        yield name, f"{mine.num_rows:,} positions (ledger, entry) {some}{more} are"


def _total(rows: pa.Table, figures: Sequence[str], keys: Keys) -> pa.Table:
    total = rows.group_by(list(keys)).aggregate([(name, "sum") for name in figures])
    return total.rename_columns([name.removesuffix("_sum") for name in total.column_names])


def _signed(counts: pa.Table, sign: int, keys: Keys) -> pa.Table:
    columns = {key: counts.column(key) for key in keys}
    columns |= {name: pc.multiply(counts.column(name), sign) for name in FIGURES}
    return pa.table({**columns, "held": counts.column("n")})


def _ones(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(1, _LONG), rows.num_rows)

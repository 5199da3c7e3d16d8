"""Other engines read all tables while the stages work: what we commit asks for Delta's first readers, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle, product
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("duckdb", reason="the engines need requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")

import datafusion
import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.client.subscribing.schedules import set_schedule
from pipeline.delta.deltars import append, path_of, rows_of
from pipeline.delta.logs.entries import actions, first_version, log_files, newest
from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from schemas import INBOX, TABLES, Table
from tests.support.clones import PLAIN, World
from tests.support.maintained import sharply, shorten_logs
from tests.support.stream import message

FILLED = 15
"""Tables in which something has rows here."""
Rows = list[str]
Reader = Callable[[str], pa.Table]


@contextmanager
def engines() -> Iterator[Mapping[str, Reader]]:
    """What reads a table, by the folder alone."""
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension"))
    with duckdb.connect() as connected:
        connected.execute(f"SET TimeZone = 'UTC'; LOAD '{extension}'")

        def by_duckdb(path: str) -> pa.Table:
            return connected.execute("SELECT * FROM delta_scan(?)", [path]).to_arrow_table()

        yield {"delta-rs": by_deltars, "Polars": by_polars, "DataFusion": by_datafusion, "DuckDB": by_duckdb}


def by_deltars(path: str) -> pa.Table:
    """delta-rs."""
    return DeltaTable(path).to_pyarrow_table()


def by_polars(path: str) -> pa.Table:
    """Polars."""
    return pl.read_delta(path).to_arrow()


def by_datafusion(path: str) -> pa.Table:
    """DataFusion, over the files that delta-rs names."""
    context = datafusion.SessionContext()
    context.register_dataset("read", DeltaTable(path).to_pyarrow_dataset())
    return context.sql("SELECT * FROM read").to_arrow_table()


def by_us(path: str) -> pa.Table:
    """The files of a table, as its log names them."""
    found = live_files(Files(), path)
    assert found is not None
    pieces = [pq.read_table(f"{path}/{unquote(each['path'])}", partitioning=None) for each in found[1]]
    return pa.concat_tables(pieces, promote_options="default") if pieces else DeltaTable(path).to_pyarrow_table()


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a column may hold
    """A value in one form, however an engine spells it: maps are pairs, instants are microseconds."""
    match value:
        case datetime():
            return round(value.timestamp() * 1_000_000)
        case {"key": key, "value": text, **rest} if not rest:
            return key, text
        case dict():
            return sorted((name, plain(each)) for name, each in value.items())
        case list():
            return [plain(each) for each in value]
        case _:
            return value


def rows(found: pa.Table) -> Rows:
    """Rows as texts, in one order."""
    return sorted(repr(plain(row)) for row in found.to_pylist())


@dataclass
class Onlooker:
    """After each step of a stage one engine reads one table, each engine and table in turn.

    Attributes:
        read: how often each engine has read.
    """

    root: str
    readers: Mapping[str, Reader]
    read: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the first ones."""
        self._turns = cycle(product(TABLES, self.readers))

    def __call__(self, _step: str, _batch: int) -> None:
        """Look."""
        table, engine = next(self._turns)
        self.look(table, engine)

    def look(self, table: Table, engine: str) -> Rows:
        """An engine sees of a table what its files hold."""
        path = path_of(self.root, table)
        seen = rows(self.readers[engine](path))
        assert seen == rows(by_us(path)), f"{engine} reads {table.name}"
        self.read.append((table.name, engine))
        return seen

    def look_at_all(self) -> dict[str, int]:
        """The same for each engine and table; how many rows a table has."""
        return {table.name: len(self.look(table, engine)) for table, engine in product(TABLES, self.readers)}


def lived(world: World) -> None:
    """Something of everything happens: delivered, failed, given up, cancelled, moved, held, refused, recurring."""
    set_schedule(world.root, "daily", "t", cron="0 9 * * *", zone="UTC", payload="recurs")
    append(world.root, INBOX, rows_of(INBOX, [{**message("refused", after=1_000), "topic": None}]))
    world.send(0, 0, 0, 0, 5, 5, 30, 3_600)
    world.go_on(0)
    world.consume(0, "ack")
    for kind in ("nack", "ack"):
        world.consume(1, kind)
        world.go_on(0)
    world.cancel(4)
    world.shift(5, 2)
    world.pause(PLAIN, on=True)
    for _ in range(4):
        world.consume(2, "nack")
        world.go_on(10)


@pytest.fixture(scope="module")
def onlooker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Onlooker]:
    """A world that lived, and what each engine has read of it meanwhile."""
    with engines() as readers:
        found = Onlooker(str(tmp_path_factory.mktemp("engines") / "warehouse"), readers)
        world = World.new(found.root, horizon_ms=20_000, observe=found)
        shorten_logs(world.root)
        lived(world)
        yield found


def protocols(root: str, table: Table) -> list[Any]:
    """What the versions of a table say of its protocol, from the first one on."""
    path = path_of(root, table)
    said = (action for version in range(newest(Files(), path) + 1) for action in actions(Files(), path, version))
    return [action["protocol"] for action in said if "protocol" in action]


def test_other_engines_read_all_tables_while_the_stages_work(onlooker: Onlooker) -> None:
    """Between any two commits: a table has been read at each of them, by each engine in turn; then all read all."""
    assert {engine for _, engine in onlooker.read} == set(onlooker.readers)
    assert len(onlooker.read) > len(TABLES)
    counts = onlooker.look_at_all()
    assert sum(map(bool, counts.values())) >= FILLED


def test_no_commit_raises_the_protocol(onlooker: Onlooker) -> None:
    """A table is made for the first readers and the second writers, and no version says anything else."""
    first = {"minReaderVersion": 1, "minWriterVersion": 2}
    assert {table.name: protocols(onlooker.root, table) for table in TABLES} == {each.name: [first] for each in TABLES}


def test_they_read_what_maintenance_has_left(onlooker: Onlooker, tmp_path: Path) -> None:
    """Files are merged, and logs begin with a checkpoint, which says the same of the protocol."""
    after = Onlooker(str(copytree(onlooker.root, tmp_path / "copy")), onlooker.readers)
    sharply(Warehouse(after.root), 0)
    after.look_at_all()
    logs = {table.name: log_files(Files().names(f"{path_of(after.root, table)}/_delta_log")) for table in TABLES}
    assert {"messages", "segments", "redelivery"} <= {name for name, files in logs.items() if first_version(files)}
    for table in TABLES:
        found = DeltaTable(path_of(after.root, table)).protocol()
        assert (found.min_reader_version, found.min_writer_version) == (1, 2), table.name
        assert not found.reader_features, table.name
        assert not found.writer_features, table.name

"""What is read in this process, and files that hold far more than their size, which are told before they are."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="what is read here is compared with the types of Spark")

from pipeline.config.routes import NotInDriver
from pipeline.delta.checkpoints import Checkpoint, Position
from pipeline.delta.logs.entries import uri_name
from pipeline.delta.reading.messages import Bounds, MessageLog, messages
from pipeline.ingest.accept_local import INBOX_ROWS
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.storage.files import Files
from pipeline.storage.parquet import whole
from schemas import INBOX, MESSAGES
from state.units import Ms
from tests.support.held import held

MB = 1 << 20
MOST = 64 * MB


def inbox(**columns: list[Any]) -> pa.Table:
    """Rows of the inbox."""
    count = len(next(iter(columns.values())))
    made = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type) for f in INBOX_ROWS]
    return pa.Table.from_arrays(made, schema=INBOX_ROWS)


EQUAL = {"payload": [b"x" * 20_000] * 10_000}
ENTRIES = {"properties": [[(f"k{n}", "v" * 60_000) for n in range(500)]] * 10}
UNEVEN = {"payload": [b"x"] * 60_000 + [b"y" * 300_000] * 2_000}


@pytest.mark.parametrize(
    ("columns", "how"),
    [
        (EQUAL, {}),
        (EQUAL, {"use_dictionary": False, "column_encoding": {"payload": "DELTA_BYTE_ARRAY"}}),
        (ENTRIES, {}),
        (UNEVEN, {"use_dictionary": False, "compression": "zstd"}),
    ],
    ids=["dictionary", "prefixes", "entries of maps", "a few long ones"],
)
def test_a_small_file_of_far_more_than_may_be_held_is_left_to_spark(
    tmp_path: Path, columns: dict[str, list[Any]], how: dict[str, Any]
) -> None:
    """Whatever the file is like, no more is held than may be."""
    path = str(tmp_path / "file.parquet")
    pq.write_table(inbox(**columns), path, **how)
    assert Path(path).stat().st_size < MB
    pool = pa.default_memory_pool()
    pool.release_unused()
    before = pool.bytes_allocated()
    tracemalloc.start()
    with pytest.raises(NotInDriver):
        whole(INBOX, [path], MOST)
    tracemalloc.stop()
    assert held(before, MB) <= MB


def test_what_is_usual_is_read_as_it_is(tmp_path: Path) -> None:
    """Equal topics, keys and properties are what dictionaries are for."""
    rows = inbox(
        topic=["t"] * 100_000,
        message_key=[f"k{n % 10}" for n in range(100_000)],
        properties=[[("a", "b"), ("c", None)]] * 100_000,
        payload=[b"%100d" % n for n in range(100_000)],
    )
    path = str(tmp_path / "file.parquet")
    pq.write_table(rows, path)
    assert whole(INBOX, [path, path], MOST) == pa.concat_tables([rows, rows]).combine_chunks()


def test_a_file_that_is_cut_off_is_left_to_spark(tmp_path: Path) -> None:
    """Who says what is wrong with it is whoever reads it in the end."""
    path = tmp_path / "file.parquet"
    pq.write_table(inbox(topic=["t"]), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(NotInDriver):
        whole(INBOX, [str(path)], MOST)


class Log:
    """Files of `messages`, of which nobody knows what they hold."""

    def __init__(self, *paths: Path) -> None:
        """Where they are."""
        self._paths = [str(path) for path in paths]

    def files(self, _: object) -> list[str]:
        """As `MessageLog.files`."""
        return self._paths

    def readable_paths(self, files: list[str]) -> list[str]:
        """As `MessageLog.readable_paths`."""
        return files


def written(path: Path, how: dict[str, Any]) -> tuple[Path, list[tuple[int, int, int]]]:
    """A file of messages in the order of their due times; where it is, and their (entry, ledger, due time in ms)."""
    rng = np.random.default_rng(len(path.name))
    rows = [(n, int(rng.integers(5)), 1_000 + n * 10) for n in range(300)]
    entry, ledger, due = zip(*rows, strict=True)
    schema = arrow_schema(MESSAGES.schema)
    given = {"topic": pa.repeat("t", 300), "entry_id": pa.array(entry), "ledger_id": pa.array(ledger)}
    given["due_time"] = pa.array([ms * 1_000 for ms in due])
    columns = [given.get(field.name, pa.nulls(300)).cast(field.type) for field in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, row_group_size=40, **how)
    return path, rows


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(),
        Bounds(first_due=2_000, last_due=2_340),
        Bounds(first_ledger=2, last_ledger=3),
        Bounds(1, 1, 1_501, 1_900),
        Bounds(last_due=1_000),
        Bounds(last_due=999),
        Bounds(first_ledger=5),
    ],
)
@pytest.mark.parametrize(
    "how", [{}, {"write_statistics": False}, {"coerce_timestamps": "ms"}, {"use_deprecated_int96_timestamps": True}]
)
def test_messages_within_bounds_are_found_and_no_others(tmp_path: Path, bounds: Bounds, how: dict[str, Any]) -> None:
    """However a file tells times, and whatever it says of them; ends are included."""
    files = [written(tmp_path / name, how) for name in ("a", "bb")]
    log = cast("MessageLog", Log(*(path for path, _ in files)))
    batches = list(messages(log, bounds, ("entry_id", "due_time")))
    kind = arrow_schema(MESSAGES.schema).field("due_time").type
    assert all(batch.schema == pa.schema({"entry_id": pa.int64(), "due_time": kind}) for batch in batches)
    rows = pa.Table.from_batches(batches, batches[0].schema) if batches else pa.table({"entry_id": [], "due_time": []})
    found = list(zip(rows.column("entry_id").to_pylist(), longs(rows, "due_time") // 1_000, strict=True))
    wanted = [
        (entry, due)
        for _, rows in files
        for entry, ledger, due in rows
        if bounds.first_ledger <= ledger <= bounds.last_ledger and bounds.first_due <= due <= bounds.last_due
    ]
    assert found == wanted


@pytest.mark.parametrize("spoilt", ["a column less", "a time that is not known", "a file that is cut off"])
def test_messages_that_are_not_what_the_table_says_are_left_to_spark(tmp_path: Path, spoilt: str) -> None:
    """Whoever wrote such a file."""
    path, _ = written(tmp_path / "file", {})
    rows = pq.read_table(path)
    if spoilt == "a column less":
        pq.write_table(rows.drop_columns(["parked"]), path)
    elif spoilt == "a time that is not known":
        unknown = pa.nulls(1, rows.schema.field("due_time").type)
        due = pa.chunked_array([unknown, rows.column("due_time")[1:].combine_chunks()])
        pq.write_table(rows.set_column(rows.schema.get_field_index("due_time"), "due_time", due), path)
    else:
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(NotInDriver):
        list(messages(cast("MessageLog", Log(path)), Bounds(), ("entry_id",)))
    assert list(messages(cast("MessageLog", Log()), Bounds(), ("entry_id",))) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/b c%.parquet", "b%20c%25.parquet"), ("part-0_1~(2)+é.parquet", "part-0_1~(2)+é.parquet"), ("[x]", "%5Bx%5D")],
)
def test_a_file_has_the_name_that_spark_gives_it(path: str, name: str) -> None:
    """As `java.net.URI` writes it: `tests/spark/storage/test_files.py` asks Spark."""
    assert uri_name(path) == name


def test_a_checkpoint_never_begins_before_its_origin(tmp_path: Path) -> None:
    """Delta's stream begins with a version, and may end its first batch within what others have taken of it."""
    logged = [(1, 0), (2, -1), (3, -1)]
    offset = 'v1\n{{}}\n{{"reservoirVersion":{},"index":{}}}\n{{"instant":{}}}'
    files, path = Files(), str(tmp_path)
    for number, end in enumerate(logged):
        files.write(f"{path}/offsets/{number}", offset.format(*end, 7 + number))
    files.write(f"{path}/origin.json", '{"version": 2, "index": -1, "instant": 5, "rebuilt": null, "after": []}')
    checkpoint = Checkpoint(files, path)
    ends = [checkpoint.position(number) for number in range(3)]
    assert ends == [Position(Ms(7), 2, -1), Position(Ms(8), 2, -1), Position(Ms(9), 3, -1)]
    assert [checkpoint.start(number) for number in range(3)] == [Position(Ms(5), 2, -1), *ends[:2]]

"""Our own way to add a version, to follow a log and to merge files, beside delta-rs': on a disk and in a store.

The store is moto's server, a Python process on the same machine, so its time is in the figures. Both ways take turns,
each on a table of its own with the same log, so what else the machine does meanwhile slows both.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_rows
from benchmarks.support.s3 import named
from benchmarks.support.usual import usual_machine
from pipeline.config import s3
from pipeline.config.session import local_session
from pipeline.delta.deltars import append, create, open_table
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.properties import PROPERTIES
from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.datafiles import DataFile
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.parquet import whole
from schemas import INBOX, REDELIVERY

TABLE = REDELIVERY
"""Only its stage commits to it. On a disk a commit to `inbox` waits 0.1 s for a Spark process that may replace it."""
BUCKET, PLACES, VERSIONS = "bench", ("disk", "store"), (10, 1_000)
COMMITS, MERGES, FILES, ROWS = 50, 7, 20, 1_000
"""So many commits and looks are timed, so many merges, each of so many files of so many rows."""
_MOST_BYTES = 1 << 28
_STATS = '{"numRecords":1}'
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
Call = Callable[[], object]


@dataclass(frozen=True)
class Place:
    """Where tables are measured, and what is measured with."""

    name: str
    spark: SparkSession
    root: str

    def copied(self, template: Path, name: str) -> str:
        """A warehouse like a template."""
        root = f"{self.root}/{name}"
        if self.name == PLACES[0]:
            shutil.copytree(template, root)
        else:
            pa.fs.copy_files(str(template), root.removeprefix("s3a://"), destination_filesystem=s3.files())
        return root


def filled(root: Path, versions: int) -> Path:
    """A template: a table with so many versions, each of one file, and a checkpoint where there would be one."""
    create(str(root), TABLE, PROPERTIES)
    table = open_table(str(root), TABLE)
    for number in range(versions):
        _transaction(table, f"filled-{number}", PostCommitHookProperties(cleanup_expired_logs=False))
    return root


def _transaction(table: DeltaTable, name: str, hooks: PostCommitHookProperties = _NO_HOOKS) -> None:
    """A version by delta-rs, refused when somebody else's is in its way, as ours must be."""
    file = AddAction(f"{name}.parquet", 1_000, {}, 0, data_change=True, stats=_STATS)
    properties = CommitProperties(custom_metadata={"userMetadata": "a note"}, max_commit_retries=1)
    schema = arrow_schema(TABLE.schema)
    table.create_write_transaction(
        [file], "append", schema, commit_properties=properties, post_commithook_properties=hooks
    )


def commits(place: Place, template: Path) -> tuple[Iterator[Call], Iterator[Call]]:
    """Versions of one file: ours, and those of delta-rs with a handle that is kept open."""
    ours = Appender(place.spark, f"{place.copied(template, 'ours')}/{TABLE.name}", TABLE)
    theirs = open_table(place.copied(template, "theirs"), TABLE)

    def commit(number: int) -> None:
        ours.commit([DataFile(f"new-{number}.parquet", 1_000, 0, 1, _STATS)], "a note")

    def transaction(number: int) -> None:
        theirs.update_incremental()
        _transaction(theirs, f"new-{number}")

    return _each(commit), _each(transaction)


def looks(place: Place, template: Path) -> tuple[Iterator[Call], Iterator[Call]]:
    """What the files of a table are now, when a version has come: `LiveFiles`, and delta-rs' own list."""
    root = place.copied(template, "looked")
    ours = LiveFiles(Warehouse(root, place.spark), TABLE, lambda file: file["size"])
    theirs, writer = open_table(root, TABLE), open_table(root, TABLE)
    ours.look()

    def list_files() -> object:
        theirs.update_incremental()
        return pa.table(theirs.get_add_actions())

    def first() -> Iterator[Call]:
        for number in range(COMMITS):
            writer.update_incremental()
            _transaction(writer, f"new-{number}")
            yield ours.look

    return first(), _each(lambda _: list_files())


def merges(place: Place, template: Path) -> tuple[Iterator[Call], Iterator[Call]]:
    """Small files merged into one: as maintenance does, and by delta-rs' `optimize.compact`."""
    return _merging(place, template, "ours", _merged), _merging(place, template, "theirs", _compacted)


def _merging(place: Place, template: Path, name: str, merge: Callable[[Place, str], object]) -> Iterator[Call]:
    for number in range(MERGES):
        root = place.copied(template, f"{name}-{number}")
        yield lambda root=root: merge(place, root)  # type: ignore[misc]


def _merged(place: Place, root: str) -> None:
    path = f"{root}/{INBOX.name}"
    version, live = TableLog(place.spark, path).files()
    held = whole(INBOX, [f"{path}/{file['path']}" for file in live], _MOST_BYTES)
    appender = Appender(place.spark, path, INBOX)
    sizes = {file["path"]: int(file["size"]) for file in live}
    assert appender.replace(version, sizes, appender.put(held), {})  # noqa: S101 - nobody else is there


def _compacted(_: Place, root: str) -> None:
    metrics = open_table(root, INBOX).optimize.compact()
    assert metrics["numFilesRemoved"] == FILES, metrics  # noqa: S101 - the same work


def unmerged(root: Path) -> Path:
    """A template: an inbox with some small files."""
    create(str(root), INBOX, PROPERTIES)
    random = np.random.default_rng(7)
    for _ in range(FILES):
        append(str(root), INBOX, inbox_rows(random, ROWS, 1_700_000_000_000, (0, 1_000_000), 100))
    return root


def _each(call: Callable[[int], object]) -> Iterator[Call]:
    for number in range(COMMITS):
        yield lambda number=number: call(number)  # type: ignore[misc]


def timed(pair: tuple[Iterator[Call], Iterator[Call]]) -> tuple[list[float], list[float]]:
    """The ms that each call of two ways took, in turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for calls in zip(*pair, strict=True):
        for call, took in zip(calls, found, strict=True):
            start = time.perf_counter()
            call()
            took.append((time.perf_counter() - start) * 1_000)
    return found


def row(name: str, place: Place, versions: int, pair: tuple[Iterator[Call], Iterator[Call]]) -> dict[str, Any]:
    """Medians of both ways, the first call of each left out, and theirs by ours."""
    ours, theirs = (float(np.median(took[1:])) for took in timed(pair))
    figures = {"ours_ms": round(ours, 2), "delta_rs_ms": round(theirs, 2), "delta_rs_by_ours": round(theirs / ours, 2)}
    return {"measured": name, "place": place.name, "versions": versions, **figures}


def measured(place: Place, versions: tuple[int, ...], templates: Mapping[int, Path]) -> Iterator[dict[str, Any]]:
    """All rows of one place."""
    for count in versions:
        for name, way in (("commit", commits), ("look", looks)):
            part = Place(place.name, place.spark, f"{place.root}/{name}-{count}")
            yield row(name, place, count, way(part, templates[count]))
    yield row(f"merge {FILES} files", place, FILES, merges(place, templates[0]))


def rows(places: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """All rows: one session, one store, templates made once."""
    with (
        tempfile.TemporaryDirectory(prefix="delayline-commits-") as folder,
        named(BUCKET) if PLACES[1] in places else nullcontext(),
    ):
        roots = {PLACES[0]: f"{folder}/disk", PLACES[1]: f"s3a://{BUCKET}"}
        spark = local_session("delayline bench", usual_machine("2g"), *(roots[name] for name in places))
        spark.sparkContext.setLogLevel("OFF")
        templates = {count: filled(Path(folder, f"filled-{count}"), count) for count in VERSIONS}
        templates[0] = unmerged(Path(folder, "unmerged"))
        for name in places:
            yield from measured(Place(name, spark, roots[name]), VERSIONS, templates)
        spark.stop()


def show(found: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    name = f"{found['measured']}, {found['place']}, {found['versions']} versions"
    both = f"ours {found['ours_ms']:8.2f} ms, delta-rs {found['delta_rs_ms']:8.2f} ms"
    yield f"{name:40}{both}, theirs by ours {found['delta_rs_by_ours']:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Print machine and figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--place", nargs="*", default=list(PLACES), choices=PLACES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    tell(machine, rows(tuple(options.place)), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

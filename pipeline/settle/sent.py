"""Dead letters that are in `inbox` of batches that settle does not know of: it gives these letters once more.

That is so in a copy that was made while it ran, and when a batch dies and the checkpoint is lost. Whoever appends to
`inbox` may note any number, and write any row. So a row there stands for a letter only when it is the same in all but
the cause: then nothing is lost, whoever wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.delta.logs.entries import commits, newest
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.reading.files import read_strangers
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.letters import APPLICATION, batch_of
from schemas import INBOX

CAUSE = "delayline.cause"
"""The property that may be another one when a letter is given once more."""
_ROWS = 1 << 10
"""Rows that are held at once."""
_OF_AN_APPEND = {"commitInfo", "txn", "add"}


class Sent:
    """The letters that are there; each stands for one."""

    def __init__(self, rows: Iterator[pa.Table]) -> None:
        """Look at rows of `inbox`. A digest of each is kept."""
        self._there = Counter(_digest(row) for some in rows for row in some.to_pylist())

    def without(self, letters: pa.Table) -> pa.Table:
        """Letters less those that are there."""
        if not self._there:
            return letters
        return letters.filter(pa.array([not self._takes(row) for row in _each(letters)], pa.bool_()))

    def _takes(self, row: Mapping[str, Any]) -> bool:
        digest = _digest(row)
        if not self._there[digest]:
            return False
        self._there[digest] -= 1
        return True


def letters_behind(spark: SparkSession, warehouse: Warehouse, done: int) -> Iterator[pa.Table]:
    """Rows of `inbox` that were noted as letters of batches behind one, as far as its log reaches, some at a time.

    Args:
        spark: reads files that this process cannot.
        warehouse: where the table lies.
        done: the last batch that settle knows of.
    """
    files, path = session_files(spark), warehouse.path(INBOX)
    version = newest(files, path)
    for place, actions in enumerate(commits(files, path, version)):
        noted = [each["txn"] for each in actions if "txn" in each]
        batches = [batch_of(each["version"]) for each in noted if _is_ours(each)]
        if batches and max(batches) <= done:
            return
        # What ingest takes from any other version is not for us to say.
        if batches and set().union(*actions) <= _OF_AN_APPEND:
            added = [{**each, "version": version - place} for each in appended(actions)]
            rows, _ = read_strangers(spark, files, path, INBOX, added)
            yield from (rows.slice(first, _ROWS) for first in range(0, rows.num_rows, _ROWS))


def _is_ours(noted: Mapping[str, Any]) -> bool:
    return str(noted.get("appId")).startswith(APPLICATION) and isinstance(noted.get("version"), int)


def _each(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for first in range(0, rows.num_rows, _ROWS):
        yield from rows.slice(first, _ROWS).to_pylist()


def _digest(row: Mapping[str, Any]) -> bytes:
    """What is the same for two rows that are the same in all but the cause."""
    properties = sorted(each for each in row["properties"] or () if each[0] != CAUSE)
    told = [(name, properties if name == "properties" else row[name]) for name in sorted(row)]
    return blake2b(repr(told).encode(errors="surrogateescape"), digest_size=16).digest()

"""Dead letters that are in `inbox` of batches that settle does not know of: it gives these letters once more.

That is so in a copy that was made while it ran, and when a batch dies and the checkpoint is lost. Whoever appends to
`inbox` may note any number, and write any row. So a row there stands for a letter only when it is the same in all but
the cause: then nothing is lost, whoever wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from pipeline.config.routes import NotInDriver
from pipeline.delta.logs.entries import appended, commits, newest
from pipeline.delta.reading.files import read_files
from pipeline.delta.reading.strangers import broken, left_out, unfolding
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.parquet import MOST_UNFOLDED, row_groups
from pipeline.subscriptions.letters import APPLICATION, batch_of
from schemas import INBOX

CAUSE = "delayline.cause"
"""The property that may be another one when a letter is given once more."""
_ROWS = 1 << 10
"""Rows that are held at once."""
_OF_AN_APPEND = {"commitInfo", "txn", "add"}
_TEXTS = pa.map_(pa.binary(), pa.binary())


class Sent:
    """The letters that are there; each stands for one."""

    def __init__(self, files: Iterable[Counter[bytes]]) -> None:
        """Take what files of `inbox` have, by the digests of their rows."""
        self._there = Counter[bytes]()
        for each in files:
            self._there += each

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


def letters_behind(warehouse: Warehouse, done: int) -> Iterator[Counter[bytes]]:
    """What files of `inbox` have that were noted as letters of batches behind one, as far as its log reaches.

    Args:
        warehouse: where the table lies.
        done: the last batch that settle knows of.
    """
    files, path = warehouse.files, warehouse.path(INBOX)
    version = newest(files, path)
    for place, actions in enumerate(commits(files, path, version)):
        noted = [each["txn"] for each in actions if "txn" in each]
        batches = [batch_of(each["version"]) for each in noted if _is_ours(each)]
        if batches and max(batches) <= done:
            return
        # What ingest takes from any other version is not for us to say.
        if batches and set().union(*actions) <= _OF_AN_APPEND:
            for each in appended(actions):
                yield _digests(warehouse, {**each, "version": version - place})


def _digests(warehouse: Warehouse, added: Mapping[str, Any]) -> Counter[bytes]:
    """Of the rows of a file; none of one that ingest does not take. A payload may be as long as it likes."""
    files, path = warehouse.files, warehouse.path(INBOX)
    if left_out(files, path, [added]) or unfolding(files, path, INBOX, [added], MOST_UNFOLDED):
        return Counter()
    try:
        groups = row_groups(INBOX, [f"{files.readable(path) or path}/{added['path']}"])
        return Counter(_digest(row) for group in groups for rows in group.all() for row in _each(rows))
    except (NotInDriver, OSError, pa.ArrowException):
        if broken(files, path, INBOX, [added]):
            return Counter()
        return Counter(map(_digest, _each(read_files(warehouse, INBOX, [added["path"]]))))


def _is_ours(noted: Mapping[str, Any]) -> bool:
    return str(noted.get("appId")).startswith(APPLICATION) and isinstance(noted.get("version"), int)


def _each(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows by their bytes: texts of strangers may be no UTF-8, and their times none that Python knows."""
    for first in range(0, rows.num_rows, _ROWS):
        yield from rows.slice(first, _ROWS).cast(_PLAIN).to_pylist()


def _plain(field: pa.Field) -> pa.Field:
    kind = pa.int64() if pa.types.is_timestamp(field.type) else pa.binary() if pa.types.is_string(field.type) else None
    return field.with_type(_TEXTS if pa.types.is_map(field.type) else kind or field.type)


_PLAIN = pa.schema([_plain(field) for field in arrow_schema(INBOX.schema)])
_CAUSE = CAUSE.encode()


def _digest(row: Mapping[str, Any]) -> bytes:
    """What is the same for two rows that are the same in all but the cause."""
    properties = sorted(map(repr, (each for each in row["properties"] or () if each[0] != _CAUSE)))
    values = [(name, properties if name == "properties" else row[name]) for name in sorted(row)]
    return blake2b(repr(values).encode(), digest_size=16).digest()

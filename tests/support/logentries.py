"""Entries of a log as any writer of Delta may leave them, drawn at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.delta.deltars import path_of
from pipeline.subscriptions.letters import APPLICATION, BEFORE
from schemas import INBOX, Table
from tests.support.forged import add, file_of, version

Row = Mapping[str, Any]
_INFOS: tuple[Any, ...] = (
    None,
    {},
    {"timestamp": 0, "operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True},
    {"operation": None, "operationMetrics": None, "userMetadata": None, "timestamp": None},
    {
        "operation": "MERGE",
        "operationParameters": {"predicate": [1]},
        "operationMetrics": {"numTargetRowsInserted": "x"},
    },
    {"operation": 7, "operationParameters": "x", "operationMetrics": ["y"], "engineInfo": "", "anything": {"a": [{}]}},
    {"userMetadata": json.dumps({"stage": "settle", "owner": "x", "batch": 10**30, "note": {"source": 1}})},
    {"userMetadata": "not JSON", "readVersion": -1},
)
_STATS: tuple[Any, ...] = (
    None,
    "",
    "nothing",
    "[]",
    json.dumps({"numRecords": None, "minValues": None, "maxValues": None, "nullCount": None}),
    json.dumps({"numRecords": 0}),
    json.dumps({"numRecords": 5_000, "minValues": {"kind": "zzz", "topic": 5}, "maxValues": {"kind": "a"}}),
    json.dumps({"numRecords": 2.5, "nullCount": {"due_time": -1}}),
)
_NAMES = (APPLICATION, BEFORE, f"{APPLICATION}-1", "delayline-put-back dead", "spark", "", "ü\0")
_PATHS = (
    "../messages/x.parquet",
    "/etc/passwd",
    "file:///etc/passwd",
    "s3://b/x",
    "%2E%2E/x",
    "a/../../x",
    "",
    "a%00b",
)
_MORE: tuple[dict[str, Any], ...] = (
    {"cdc": None, "domainMetadata": None},
    {"futureAction": {"path": "x", "deep": [[]]}},
    {"add": None, "remove": None},
)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(200) + data[204:])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


_HARM: tuple[Callable[[Path], object], ...] = (
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"PAR1" * 9),
    _cut,
    _torn,
    _folder,
)


class Strangers:
    """Writers of a warehouse.

    Attributes:
        good: rows of `inbox` in files that can be read, of versions that appended them.
        left: how many files of `inbox` cannot be read, or must not be.
        changes: versions of `inbox` that took something out and added rows.
    """

    def __init__(self, root: str, rng: random.Random) -> None:
        self._root, self._rng, self._number = root, rng, 0
        self.good: list[Row] = []
        self.left = self.changes = 0

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """A version of a table with some files: each row may be in a good one, and broken ones may be beside."""
        rng, actions = self._rng, list[dict[str, Any]]()
        info = rng.choice(_INFOS)
        actions += [] if info is None else [{"commitInfo": info}]
        for _ in range(rng.randrange(3)):
            txn = {"appId": rng.choice(_NAMES), "version": rng.choice((0, 1, 1 << 60, (1 << 63) - 1))}
            actions.append({"txn": txn | rng.choice(({}, {"lastUpdated": None}))})
        taken = [row for row in rows if rng.random() < 0.7]
        actions += [self._file(table, [row]) for row in taken]
        broken = [self._bad(table, rows[0]) for _ in range(rng.choice((0, 0, 1, 2)))]
        actions += broken
        removes = rng.random() < 0.1 and bool(taken)
        actions += (
            [{"remove": {"path": "never.parquet", "dataChange": True, "deletionTimestamp": 0}}] if removes else []
        )
        actions += rng.sample(_MORE, rng.randrange(3))
        rng.shuffle(actions)
        if not actions:
            actions = [{"commitInfo": {}}]
        version(self._root, table, *actions)
        if table is INBOX:
            self.changes += removes
            self.good += [] if removes else taken
            self.left += 0 if removes else len(broken)

    def _name(self) -> str:
        self._number += 1
        return self._rng.choice(("s{}.parquet", "sub/s{}.parquet", "s {}.parquet", "ü{}.parquet")).format(self._number)

    def _file(self, table: Table, rows: Sequence[Row]) -> dict[str, Any]:
        name = self._name()
        size = file_of(self._root, table, name, rows)
        more = self._rng.choice(({}, {"tags": None, "deletionVector": None}, {"stats": self._rng.choice(_STATS)}))
        spelled = name.replace(" ", "%20") if self._rng.random() < 0.5 else name
        return add(spelled, size, **more)

    def _bad(self, table: Table, row: Row) -> dict[str, Any]:
        if self._rng.random() < 0.4:
            return add(f"{self._rng.choice(_PATHS)}")
        name = self._name()
        size = file_of(self._root, table, name, [row])
        self._rng.choice(_HARM)(Path(path_of(self._root, table)) / name)
        return add(name, size)

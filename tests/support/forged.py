"""Versions of a table as a stranger writes them by hand: any actions, legal or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.deltars import arrow_schema, path_of
from schemas import Table

INFO = {"commitInfo": {"timestamp": 0, "operation": "WRITE"}}


def add(path: str, size: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a stranger says
    """The action that adds a file; `more` are further fields, or others in their place."""
    file = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    return {"add": file | {"stats": '{"numRecords": 1}'} | more}


def file_of(root: str, table: Table, path: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write a file of rows below a table's folder, by its path; its size in bytes."""
    where = Path(path_of(root, table)) / path
    where.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([*rows], schema=arrow_schema(table)), where)
    return where.stat().st_size


def version(root: str, table: Table, *actions: Mapping[str, Any], text: str | None = None) -> int:
    """Add a version with these actions, or with this text for an entry; its number."""
    log = Path(path_of(root, table)) / "_delta_log"
    number = max(int(each.stem) for each in log.glob("*.json")) + 1
    lines = "".join(f"{json.dumps(each)}\n" for each in actions)
    (log / f"{number:020d}.json").write_text(lines if text is None else text, encoding="utf-8")
    return number

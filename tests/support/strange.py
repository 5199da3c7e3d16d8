"""Files of the inbox as strange writers leave them: the rows are messages, what the log says of them is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.deltars import append, arrow_schema, path_of
from schemas import INBOX

YEAR_58865_US = 1_795_442_520_000_000_000
"""Now, in nanoseconds, which a producer took for microseconds."""
_FAR = {"publish_time": "+58865-03-01T10:00:00Z"}
STATISTICS: dict[str, str | None] = {
    "none": None,
    "not JSON": '{"numRecords": 1, "minVal',
    "NaN": json.dumps({"numRecords": 1, "maxValues": {"publish_time": float("nan")}, "nullCount": {"publish_time": 0}}),
    "far": json.dumps({"numRecords": 1, "minValues": _FAR, "maxValues": _FAR, "nullCount": {"publish_time": 0}}),
}
"""What the log says of a file, by the payload of its only row."""


def far_off(root: str, payload: str) -> None:
    """Append a row that was published in the year 58865, by delta-rs, which notes that in the log."""
    times = pa.array([YEAR_58865_US], pa.int64()).cast(pa.timestamp("us", "UTC"))
    append(root, INBOX, _row(payload).set_column(3, "publish_time", times))


def strange(root: str) -> None:
    """Append a good row for each of `STATISTICS`, one version for all, with what the log then says of them."""
    folder = Path(path_of(root, INBOX))
    actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}]
    for payload, stats in STATISTICS.items():
        name = f"{payload.replace(' ', '-')}.parquet"
        pq.write_table(_row(payload), folder / name)
        entry = {"path": name, "size": (folder / name).stat().st_size, "modificationTime": 0, "dataChange": True}
        actions.append({"add": {**entry, "partitionValues": {}, **({} if stats is None else {"stats": stats})}})
    log = folder / "_delta_log"
    version = max(int(each.stem) for each in log.glob("*.json")) + 1
    (log / f"{version:020d}.json").write_text("".join(f"{json.dumps(each)}\n" for each in actions))


def _row(payload: str) -> pa.Table:
    return pa.Table.from_pylist([{"topic": "t", "payload": payload.encode()}], schema=arrow_schema(INBOX))

"""Examples of the guide that write to a warehouse: run word for word, on a warehouse of the test."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.delta.deltars import open_table
from schemas import INBOX
from tests.support.client import new_warehouse
from tests.support.modules import ROOT


def test_rows_that_delta_rs_appends_as_the_guide_says_are_rows_like_all_others(tmp_path: Path) -> None:
    """Columns are left out there, which delta-rs takes only when it is told to."""
    new_warehouse(str(tmp_path))
    page = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "write_deltalake(" in each)
    before, columns = datetime.now(UTC), open_table(str(tmp_path), INBOX).schema().to_json()
    names: dict[str, Any] = {}
    exec(block.replace("DIR/", f"{tmp_path}/"), names)  # noqa: S102 - our own page
    table = open_table(str(tmp_path), INBOX)
    rows = pa.table(table.to_pyarrow_table()).to_pylist()
    assert sorted(row["payload"] for row in rows) == [b"invoice 17", b"invoice 18"]
    for row in rows:
        assert before + timedelta(minutes=5) <= row["deliver_at"] <= datetime.now(UTC) + timedelta(minutes=5)
        assert {name for name, value in row.items() if value is not None} == {"topic", "deliver_at", "payload"}
    # The table has not become another one.
    assert table.schema().to_json() == columns
    send(str(tmp_path), [OutgoingMessage("orders", b"and ours")])

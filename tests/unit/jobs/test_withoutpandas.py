"""Commands that work beside a job do without pandas."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas", reason="what is not installed is not imported")
pytest.importorskip("pyarrow", reason="it is what imports pandas")

PROGRAM = """
import sys
from jobs.withoutpandas import leave_out_pandas
leave_out_pandas()
import pyarrow as pa
assert pa.array((1, 2)).to_pylist() == [1, 2]
assert pa.table({"a": [1]}).join(pa.table({"a": [1]}), "a").num_rows == 1
assert "pandas" not in sys.modules
"""


def test_arrays_are_made_without_pandas() -> None:
    """PyArrow would import it for the first array."""
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0  # noqa: S603 - our own

"""Tables made of columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.storage.arrays import completed


def test_what_is_not_given_is_the_same_in_all_rows_or_null() -> None:
    """Columns come as they are at hand, and have the types of the schema afterwards; names beyond it are left out."""
    kinds = {"number": pa.int64(), "at": pa.timestamp("us", "UTC"), "text": pa.string(), "map": pa.map_("u1", "u1")}
    schema = pa.schema(list(kinds.items()))
    given = {"number": np.array([1, 2]), "at": pa.array([3, 4]), "more": pa.array([5, 6])}
    rows = completed(schema, given, {"text": "a", "number": 9}, 2)
    assert rows.schema == schema
    assert rows.column("at").cast(pa.int64()).to_pylist() == [3, 4]
    assert rows.drop_columns("at").to_pylist() == [{"number": n, "text": "a", "map": None} for n in (1, 2)]
    assert completed(schema, {"text": ["b"]}, {}, 1).column("text").to_pylist() == ["b"]
    assert completed(schema, {}, {"text": "a"}, 0).num_rows == 0

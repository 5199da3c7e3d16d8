"""A function of Arrow's arrays as a function of Spark's columns, on all lines of Spark.

Spark has `arrow_udf` since 4.1. Before, a function of pandas takes its place. Pandas has no whole numbers beside NULL,
its times end in 2262, and its texts are UTF-8; so what goes there and comes back is bytes and digits. That takes more
time, and the values are the same: `tests/spark/ingest/test_rules.py` compares them with those of the function itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.config.lazyspark import F
from pipeline.config.sparkversion import spark_line

if TYPE_CHECKING:
    from pyspark.sql import Column

ArrowFunction = Callable[..., pa.Array]
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "boolean": pa.bool_(),
}
"""What arguments, and fields of what is given, may be."""


def arrow_column(
    function: ArrowFunction, arguments: Sequence[tuple["Column", str]], fields: Mapping[str, str]
) -> "Column":
    """The value of a function for each row, as a column.

    Args:
        function: of arrays, in the order of the arguments; it gives an array of structs.
        arguments: columns, and their types: string, binary, bigint, timestamp or boolean.
        fields: the fields of the structs, and their types, of the same ones.
    """
    functions: Any = F  # mypy finds neither of the two there
    if spark_line().has_arrow_udf:
        found: Column = functions.arrow_udf(function, _struct(fields))(*(column for column, _ in arguments))
        return found
    texts = made_of_pandas(function, [kind for _, kind in arguments], list(fields))
    there = [_as_text(column, kind) for column, kind in arguments]
    answer = functions.pandas_udf(texts, _struct(dict.fromkeys(fields, "string")))(*there)
    return F.struct(*(_from_text(answer[name], kind).alias(name) for name, kind in fields.items()))


def made_of_pandas(function: ArrowFunction, arguments: Sequence[str], fields: Sequence[str]) -> Callable[..., Any]:
    """The function for series of bytes and of digits; it gives a frame of digits and texts."""
    import pandas as pd  # noqa: PLC0415 - only this way needs it

    def of_series(*columns: pd.Series) -> pd.DataFrame:
        arrays = [_arrow(each, kind) for each, kind in zip(columns, arguments, strict=True)]
        answer = function(*arrays)
        return pd.DataFrame({name: _text(answer.field(name)).to_pandas() for name in fields})

    return of_series


def _arrow(column: Any, kind: str) -> pa.Array:  # noqa: ANN401 - a series of pandas
    if kind in {"string", "binary"}:
        return pa.array(column, pa.binary(), from_pandas=True).cast(_TYPES[kind], safe=False)
    texts = pa.array(column, pa.string(), from_pandas=True)
    return (texts.cast(pa.int64()) if kind == "timestamp" else texts).cast(_TYPES[kind])


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


def _as_text(column: "Column", kind: str) -> "Column":
    match kind:
        case "string" | "binary":
            return column.cast("binary")
        case "timestamp":
            return F.unix_micros(column).cast("string")
    return column.cast("string")


def _from_text(column: "Column", kind: str) -> "Column":
    return F.timestamp_micros(column.cast("bigint")) if kind == "timestamp" else column.cast(kind)


def _struct(fields: Mapping[str, str]) -> str:
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>"

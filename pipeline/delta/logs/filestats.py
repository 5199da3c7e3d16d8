"""What a table's log says of a file: its statistics, whoever wrote them.

Producers append with any writer, and a log may say anything of their files: years that Python's calendar does not have,
NaN, no statistics, or no JSON. What cannot be understood is not known. That is the matter of one file.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

_MOST = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def known(stats: str | None) -> dict[str, Any]:
    """All that the statistics of a file say; empty when there are none, or when they are not JSON."""
    try:
        found = json.loads(stats or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def count(stats: str | None) -> int | None:
    """How many rows a file has; None when nobody knows."""
    found = known(stats).get("numRecords")
    return found if isinstance(found, int) and _whole(found) and 0 <= found <= _MOST else None


def greatest(stats: str | None, column: str) -> Any:  # noqa: ANN401 - whatever somebody wrote
    """What the statistics call the greatest value of a column; None when they do not say."""
    return _of(known(stats), "maxValues", column)


def span(stats: str | None, column: str) -> tuple[int, int]:
    """The least and the greatest value of a column of whole numbers.

    Raises:
        KeyError: nobody knows.
    """
    low, high = _ends(stats, column)
    if not (_whole(low) and _whole(high) and low <= high):
        raise KeyError(column)
    return low, high


def span_ms(stats: str | None, column: str) -> tuple[int, int]:
    """The first and the last value of a column of times, ms UTC.

    Raises:
        KeyError: nobody knows, or they are not between the years 1 and 9999.
    """
    low, high = (_ms(each, column) for each in _ends(stats, column))
    if low > high:
        raise KeyError(column)
    return low, high


def first_ms(stats: str | None, column: str, unknown: float) -> float:
    """The first value of a column of times, ms UTC; `unknown` where `span_ms` raises."""
    try:
        return span_ms(stats, column)[0]
    except KeyError:
        return unknown


def last_ms(stats: str | None, column: str, unknown: float) -> float:
    """The last value of a column of times, ms UTC; 0 when all of them are NULL, `unknown` when nobody knows."""
    statistics = known(stats)
    last, nulls = (_of(statistics, kind, column) for kind in ("maxValues", "nullCount"))
    if last is None and nulls is not None and nulls == count(stats):
        return 0
    try:
        return _ms(last, column)
    except KeyError:
        return unknown


def moment_us(value: object) -> int | None:
    """A time as a log has it, a text or a `datetime`, in whole ms as us UTC; None when nobody knows which one it is."""
    try:
        return _ms(value, "") * 1_000
    except KeyError:
        return None


def _ends(stats: str | None, column: str) -> tuple[Any, Any]:
    statistics = known(stats)
    return _of(statistics, "minValues", column), _of(statistics, "maxValues", column)


def _of(statistics: dict[str, Any], kind: str, column: str) -> Any:  # noqa: ANN401 - whatever somebody wrote
    values = statistics.get(kind)
    return values.get(column) if isinstance(values, dict) else None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ms(text: object, column: str) -> int:
    try:
        moment = datetime.fromisoformat(str(text))
        # A time without a zone is UTC here, as in every column of ours.
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise KeyError(column) from error

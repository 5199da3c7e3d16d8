"""Which lives of subscriptions ingest has noticed: marker rows of `segments`."""

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.incarnations import Incarnation, Joined, Name, lives_of
from schemas import SEGMENTS

_LAST_MARKER = (1 << 63) - 1
_LIVES = """
    SELECT topic, subscriptions[1]['name'] AS name, subscriptions[1]['tick_ms'] AS tick_ms, first_ledger,
        count AS entry, subscriptions[1]['life'] AS life
    FROM segments WHERE first_ledger IS NOT NULL AND marker <= {last} ORDER BY marker, first_ledger
"""


def lives(root: str) -> dict[Name, Incarnation]:
    """The last life of each subscription that ingest has noticed, by topic and name.

    Reads the marker rows of `segments` that say who joined and who left; files without any are passed over by their
    statistics.
    """
    return lives_in(open_table(root, SEGMENTS))


def lives_in(segments: DeltaTable, last_marker: int = _LAST_MARKER) -> dict[Name, Incarnation]:
    """The same of `segments` at a version, up to a marker."""
    rows = query(_LIVES.format(last=last_marker), segments=segments)
    return lives_of(((row["topic"], row["name"]), _joined(row)) for row in rows)


def _joined(row: Mapping[str, Any]) -> Joined:
    return Joined(row["first_ledger"], row["tick_ms"], row["entry"], row["life"])

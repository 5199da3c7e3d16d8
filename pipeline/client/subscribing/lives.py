"""Which lives of subscriptions ingest has noticed: marker rows of `segments`."""

from deltalake import DeltaTable

from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.incarnations import CHANGES, Incarnation, Name, lives_by
from schemas import SEGMENTS


def lives(root: str) -> dict[Name, Incarnation]:
    """The last life of each subscription that ingest has noticed, by topic and name.

    Reads the marker rows of `segments` that say who joined and who left; files without any are passed over by their
    statistics.
    """
    return lives_in(open_table(root, SEGMENTS))


def lives_in(segments: DeltaTable, last: int | None = None) -> dict[Name, Incarnation]:
    """The same of `segments` at a version, up to a marker."""
    return lives_by(query(CHANGES.format(rows="segments"), segments=segments), last)

"""Making a warehouse."""

from pipeline.config.sizing import DEFAULT_RATE
from pipeline.delta.deltars import create
from pipeline.delta.properties import PROPERTIES, segment_properties
from schemas import SEGMENTS, TABLES


def create_all(root: str, segment_ms: int | None = None, rate: int = DEFAULT_RATE) -> None:
    """Create the tables that are missing, the same as `pipeline.delta.tables.create_all` makes; others are left alone.

    Args:
        root: where the tables shall lie.
        segment_ms: span of due time that one state value covers, fixed for the warehouse's life. None: by the rate.
        rate: messages a second that the busiest topic is expected to get; sizes are chosen for it.

    Raises:
        BadSetting: the rate is not between 1 and 10 million, or the span not between a second and a day.
    """
    extra = segment_properties(rate, segment_ms)
    for table in TABLES:
        create(root, table, PROPERTIES | table.properties | (extra if table is SEGMENTS else {}))

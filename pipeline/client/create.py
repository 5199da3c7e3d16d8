"""Making a warehouse."""

from pipeline.client.delta import create
from pipeline.errors import BadSetting
from pipeline.settings import DAY_MS, MINUTE_MS
from pipeline.tables import PROPERTIES, SEGMENT_PROPERTY
from schemas import SEGMENTS, TABLES


def create_all(root: str, segment_ms: int = 5 * MINUTE_MS) -> None:
    """Create the tables that are missing, the same as `pipeline.tables.create_all` makes; others are left alone.

    Args:
        root: where the tables shall lie.
        segment_ms: span of due time that one state value covers; fixed for the life of the warehouse.

    Raises:
        BadSetting: the span is not between a second and a day.
    """
    if not 1_000 <= segment_ms <= DAY_MS:
        raise BadSetting("segment_ms", segment_ms, f"1000..{DAY_MS}")
    for table in TABLES:
        extra = {SEGMENT_PROPERTY: str(segment_ms)} if table is SEGMENTS else {}
        create(root, table, PROPERTIES | table.properties | extra)

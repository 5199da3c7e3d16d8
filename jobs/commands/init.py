"""`delayline init`: a warehouse, and what its segments hold."""

from collections.abc import Iterator

from pipeline.client.create import create_all
from pipeline.config.sizing import segment_holds
from pipeline.config.spelling import spell
from pipeline.delta.deltars import open_table
from pipeline.delta.properties import rate_of, segment_ms_of, segment_properties
from schemas import SEGMENTS


def init(root: str, rate: int, segment_ms: int | None) -> Iterator[str]:
    """Create the tables that are missing, then tell what the warehouse says of itself: it may have been there before.

    Raises:
        BadSetting: the rate or the span is outside its range, and nothing was made; or the table states no such one.
    """
    create_all(root, segment_ms, rate)
    held, wanted = open_table(root, SEGMENTS).metadata().configuration, segment_properties(rate, segment_ms)
    span = segment_ms_of(held)
    yield f"Warehouse ready in {root}"
    yield f"Segments of {spell(span)}: {segment_holds(rate_of(held), span)}"
    if wanted.items() - held.items():
        yield "It was there before, and keeps its rate and its segments"

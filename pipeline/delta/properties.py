"""What tables are created with: Delta's properties, and those that a warehouse states of itself."""

from collections.abc import Mapping

from pipeline.config.errors import BadSetting
from pipeline.config.settings import DAY_MS, SECOND_MS, check
from pipeline.config.sizing import DEFAULT_RATE, MOST_RATE, segment_for

SEGMENT_PROPERTY = "delayline.segmentMs"
RATE_PROPERTY = "delayline.rate"
_DIGITS = 19

# Checkpoints of the log every 50 commits instead of 10: each takes time inside somebody's batch. The log is kept
# for a year: a stage that starts anew reads its source from a version, and a missing version would be lost rows.
PROPERTIES = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 365 days"}


def segment_properties(rate: int, segment_ms: int | None = None) -> dict[str, str]:
    """What the table `segments` says of a new warehouse; without a span the one that goes with the rate.

    Raises:
        BadSetting: the rate is not between 1 and 10 million, or the span not between a second and a day.
    """
    check("rate", rate, 1, MOST_RATE)
    span = segment_for(rate) if segment_ms is None else segment_ms
    check("segment_ms", span, SECOND_MS, DAY_MS)
    return {RATE_PROPERTY: str(rate), SEGMENT_PROPERTY: str(span)}


def segment_ms_of(properties: Mapping[str, str]) -> int:
    """The span of a segment, ms, that properties of `segments` state.

    Raises:
        BadSetting: they state none.
    """
    if SEGMENT_PROPERTY not in properties:
        raise BadSetting(SEGMENT_PROPERTY, None, "a warehouse made by create_all")
    return int(properties[SEGMENT_PROPERTY])


def rate_of(properties: Mapping[str, str]) -> int:
    """The rate that properties of `segments` state. A warehouse from before there was one has the default.

    Raises:
        BadSetting: it is not a whole number between 1 and 10 million.
    """
    text = properties.get(RATE_PROPERTY, str(DEFAULT_RATE))
    # Python refuses to read a number of some thousand digits.
    check(RATE_PROPERTY, int(text) if text.isdecimal() and len(text) <= _DIGITS else text, 1, MOST_RATE)
    return int(text)

"""Properties that hold what a message has and `inbox` has no column for.

Clients and sources write them. Consumers read them, and a sink takes them back: what comes from a broker goes there as
it was.
"""

EVENT_TIME = "delayline.event_time"
"""The time of the event, ms UTC, a whole number."""
ORDERING_KEY = "delayline.ordering_key"
"""The ordering key, a text."""
REPLACES = "delayline.replaces"
"""The key of the messages whose place a message takes, on a topic without the policy `unique`, and its own one."""
HEADERS = "delayline.headers"
"""All headers in their order, JSON: a list of objects with `key` and, unless it is null, `value` in base64."""
KEY = "delayline.key"
"""The key in base64. It counts while the message key is the same text."""
_DIGITS = 19
"""Of 2^63 - 1. Python refuses to read a number of some thousand, and takes long for fewer."""
REFUSED = "delayline.refused"
"""Why a source could not map a row, and where the row is; ingest rejects it."""
REFUSED_MS = -(1 << 62)
"""The delay of such a row, which no producer asks for."""


def whole_number(text: str | None) -> int | None:
    """The whole number that a property holds, below 2^63; None: anybody may have written something else there."""
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text) if int(text) < 1 << 63 else None

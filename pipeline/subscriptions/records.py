"""Properties that hold what a record of a broker has and a map of texts has no room for.

A source writes them, a sink takes them back: what comes from Kafka goes there as it was.
"""

HEADERS = "delayline.headers"
"""All headers in their order, JSON: a list of objects with `key` and, unless it is null, `value` in base64."""
KEY = "delayline.key"
"""The key in base64. It counts while the message key is the same text."""
REFUSED = "delayline.refused"
"""Why a source could not map a row, and where the row is; ingest rejects it."""
REFUSED_MS = -(1 << 62)
"""The delay of such a row, which no producer asks for."""

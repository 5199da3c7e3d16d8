"""The names of the stages."""

INGEST, SCHEDULE, DISPATCH = "ingest", "schedule", "dispatch"

STAGES = (INGEST, SCHEDULE, DISPATCH)
"""In the order in which a message passes them."""
SETTLE = "settle"
"""What settles messages of subscriptions that acknowledge. It is no query of Spark's, and runs beside the stages."""

"""The names of the stages."""

INGEST, SCHEDULE, DISPATCH = "ingest", "schedule", "dispatch"

STAGES = (INGEST, SCHEDULE, DISPATCH)
"""In the order in which a message passes them."""

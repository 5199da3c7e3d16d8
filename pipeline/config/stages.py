"""The names of the stages."""

INGEST, SCHEDULE, DISPATCH, SETTLE = "ingest", "schedule", "dispatch", "settle"

STAGES = (INGEST, SCHEDULE, DISPATCH)
"""The streaming queries, in the order in which a message passes them. Settle is a loop of its own behind them."""
ALL_STAGES = (*STAGES, SETTLE)
"""What a service runs."""
IDLE_MS = 10_000
"""The clock of a stage that has nothing to do moves every few seconds; behind is what is more than this behind."""

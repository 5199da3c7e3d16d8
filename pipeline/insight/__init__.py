"""How a warehouse stands, in one record: what the command, the page, the report and programs show of it. No Spark."""

__all__ = ["duecounts", "lateness", "overview"]

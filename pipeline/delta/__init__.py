"""Delta tables and their logs: reading, following, appending once, and what a checkpoint says of a stage."""

__all__ = [
    "checkpoints",
    "claims",
    "conditions",
    "copying",
    "deltars",
    "logs",
    "properties",
    "reading",
    "streams",
    "tables",
    "views",
    "warehouse",
    "writing",
]

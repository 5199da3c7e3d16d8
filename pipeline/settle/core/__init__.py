"""What settle decides, over whole arrays: no Spark, no file, no log and no clock (`tests/unit/house/test_cores.py`)."""

__all__ = ["events", "fold", "listener", "opened", "outcome"]

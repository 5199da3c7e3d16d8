"""What dispatch decides, over whole arrays: no Spark, file, log or clock (`tests/unit/house/test_cores.py`)."""

__all__ = ["expiry", "fairness", "holding", "runs", "shaping", "suspects", "withdrawn"]

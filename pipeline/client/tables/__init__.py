"""What the client reads of tables without Spark: their logs, version after version, and the rows of their files."""

__all__ = ["datarows", "ddl", "deliveries", "job", "partitions", "untaken"]

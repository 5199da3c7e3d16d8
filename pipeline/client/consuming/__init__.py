"""Consumers: one engine for each process and warehouse, which follows the tables and appends what consumers say."""

__all__ = ["acknowledgingrows", "consumer", "opening", "options"]

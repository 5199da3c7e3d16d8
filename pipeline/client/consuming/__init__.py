"""Consumers: one engine for each process and warehouse, which follows the tables and appends what consumers say."""

__all__ = ["acknowledging", "consumer", "consumers", "options"]

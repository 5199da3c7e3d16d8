"""Clients of brokers, made from an address and the environment of the process, and nothing else."""

__all__ = ["pulsar"]

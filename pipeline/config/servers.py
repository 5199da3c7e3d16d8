"""Servers of brokers, and whether a secret may go to them in clear."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

from pipeline.config.errors import BadValue


def check_clear(scheme: str, servers: str, secrets: Collection[str]) -> None:
    """Refuse to send a secret to servers of Pulsar in clear, unless they are on this machine.

    Raises:
        BadValue: one is elsewhere, and the address does not ask for TLS.
    """
    if scheme == "pulsar" and secrets:
        for server in servers.split(","):
            host = server.rpartition(":")[0].strip("[]")
            if not _is_here(host):
                allowed = "pulsar+ssl://, since the environment has secrets: without TLS others could read them"
                raise BadValue("address", f"pulsar://{server}", allowed)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

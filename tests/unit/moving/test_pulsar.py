"""An import from Pulsar that meets no broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("pulsar", reason="the client of Pulsar is not installed (the extra `pulsar`)")

from pipeline.brokers.pulsar import package
from pipeline.config.errors import BrokerRefused
from pipeline.moving import pulsar as moving
from pipeline.moving.places import Wanted

SERVICE = "pulsar://127.0.0.1:1"


def test_what_the_client_raises_is_an_error_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client says only that it is a timeout, and not of what; the connection ends."""
    closed = list[bool]()

    def partitions(_name: str) -> list[str]:
        raise package().Timeout("TimeOut")

    client = SimpleNamespace(get_topic_partitions=partitions, close=lambda: closed.append(True))
    monkeypatch.setattr(moving, "connected", lambda _: client)
    wanted = Wanted(SERVICE, "http://127.0.0.1:2", "public/default/t", "s", "t", 60_000)
    with pytest.raises(BrokerRefused, match=f"{SERVICE} does not answer"):
        list(moving.take(str(tmp_path), wanted))
    assert closed == [True]

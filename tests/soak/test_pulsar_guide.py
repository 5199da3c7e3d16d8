"""The guide of `docs/pulsar.md`, typed as it stands, with a broker of its own."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import brokers
from tests.support.brokerguide import typed


def test_a_stranger_who_types_the_guide_gets_the_timeout(tmp_path: Path) -> None:
    """From a warehouse into a topic, from nothing; the message waits for 5 s."""
    with brokers.pulsar(tmp_path) as pulsar:
        pulsar.create("timeouts")
        said = typed(tmp_path, "pulsar.md", {"pulsar://localhost:6650": pulsar.service, "30s": "5s"})
    assert "order-1 b'order-1 was not paid' {'shop': '7'}" in said
    assert re.search(r"orders/timeouts +published 1 ", said)

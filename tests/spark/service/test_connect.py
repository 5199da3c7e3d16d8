"""Programs on a platform, by Spark Connect and without a JVM, while the stages run elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("grpc", reason="Spark Connect needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import open_table
from pipeline.subscriptions.policies import Policies
from pipeline.testing.public import warehouse
from schemas import CONSUMER_EVENTS, DELIVERIES
from tests.support.connect import CANCELLED, FAILS, KEPT, SENT, SUBSCRIPTION, TOPIC, answering, client

DELAY_MS = 60_000


@pytest.mark.parametrize("way", ["take", pytest.param("follow", marks=pytest.mark.soak)])
def test_a_client_without_a_jvm_sends_cancels_consumes_and_acknowledges(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    """What it acknowledges is done with, what it says has failed comes again, and what it cancels does not come."""
    root = str(tmp_path / "warehouse")
    with warehouse(folder=root) as elsewhere, answering(spark) as address, client(address, root, DELAY_MS) as program:
        subscribe(root, Subscription(TOPIC, SUBSCRIPTION, tick_ms=1, policies=Policies(ack=True)))
        elsewhere.run_until_idle()
        assert program("append") == len(SENT)
        elsewhere.run_until_idle()
        assert program("cancel") == 1
        elsewhere.advance(milliseconds=DELAY_MS)
        assert program(way) == [FAILS, KEPT]
        assert program("fail") == 1
        elsewhere.advance(milliseconds=DELAY_MS)
        assert program("keys") == [FAILS, FAILS, KEPT]
        elsewhere.advance(hours=24)
    said = open_table(root, CONSUMER_EVENTS).to_pyarrow_table().to_pylist()
    assert sorted(row["kind"] for row in said) == ["ack", "nack"]
    assert CANCELLED not in {row["message_key"] for row in delivered(root)}


def delivered(root: str) -> list[dict[str, object]]:
    """The rows of `deliveries`."""
    rows: list[dict[str, object]] = open_table(root, DELIVERIES).to_pyarrow_table().to_pylist()
    return rows

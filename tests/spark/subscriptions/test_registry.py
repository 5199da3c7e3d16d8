"""The registry as ingest reads it while clients change its lines."""

from __future__ import annotations

from shutil import copytree

from pyspark.sql import SparkSession

from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe, unsubscribe
from pipeline.delta.warehouse import Warehouse
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.registry import Registry
from tests.support.stream import empty_warehouse


def test_a_line_that_is_replaced_is_the_same_subscription_and_one_that_ended_is_another(
    spark: SparkSession, folder: str
) -> None:
    """Who changes policies goes on with what was open; who leaves and comes back begins anew."""
    root = copytree(empty_warehouse(300_000), folder)
    registry = Registry(Warehouse(root, spark))
    subscribe(root, Subscription("t", "s"))
    subscribe(root, Subscription("t", "other"))
    before = registry.version()
    known = registry.at(before).subscriptions
    for most in (1, 2, 3):
        set_policies(root, "t", "s", Policies(ack=True, max_redeliveries=most))
    changed = registry.version()
    assert changed == before + 3
    assert registry.at(changed).subscriptions == known
    assert registry.gone_between(known, before, changed) == frozenset()
    unsubscribe(root, "t", "s")
    assert set(registry.at(registry.version()).lines) == {("t", "other")}
    subscribe(root, Subscription("t", "s"))
    back = registry.version()
    assert registry.at(back).subscriptions == known
    assert registry.gone_between(known, changed, back) == {("t", "s")}

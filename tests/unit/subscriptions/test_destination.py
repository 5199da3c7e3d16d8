"""Addresses of sinks: what they may hold, and that nothing secret is repeated."""

from __future__ import annotations

import pytest

from pipeline.brokers import pulsar
from pipeline.config.errors import BadValue
from pipeline.subscriptions.destination import Destination, from_environment
from pipeline.subscriptions.policies import Policies


def test_an_address_names_servers_topic_and_settings() -> None:
    """As Kafka's clients take them."""
    found = Destination.parse("kafka://a:9092,[::1]:9093/orders.due?compression.type=lz4&linger.ms=5")
    assert (found.servers, found.topic) == ("a:9092,[::1]:9093", "orders.due")
    assert found.settings == {"compression.type": "lz4", "linger.ms": "5"}


def test_an_address_of_pulsar_names_tenant_and_namespace() -> None:
    """And whether it is spoken to by TLS."""
    found = Destination.parse("pulsar+ssl://a:6651,b:6651/acme/orders/timeouts.due?compression_type=LZ4")
    assert (found.scheme, found.servers, found.topic) == ("pulsar+ssl", "a:6651,b:6651", "acme/orders/timeouts.due")
    assert found.settings == {"compression_type": "LZ4"}


@pytest.mark.parametrize(
    "text",
    [
        "pulsar://a:1/out",
        "pulsar://a:1/tenant/namespace/",
        "pulsar://a:1/a/b/c/d",
        "pulsar://a:1/a/b/c?producer_name=x",
        "pulsar://a:1/a/b/c?batching_enabled=true",
        "pulsar://a/a/b/c",
        "pulsar+tls://a:1/a/b/c",
        "",
        "out",
        "http://a:1/out",
        "kafka://a/out",
        "kafka://a:1",
        "kafka://a:1/",
        "kafka://a:1/..",
        "kafka://a:1/a/b",
        "kafka://a:1/out#x",
        "kafka://a:1,/out",
        "kafka://a:1/out?acks=0",
        "kafka://a:1/out?transactional.id=x",
        "kafka://a:1/out?plugin.library.paths=/tmp/x",
        "kafka://a:1/out?linger.ms",
        "kafka://[a:1/out",
    ],
)
def test_another_form_is_refused_when_the_policy_is_set(text: str) -> None:
    """Also settings on which exactly-once rests, and those that load code."""
    with pytest.raises(BadValue, match="sink"):
        Policies(sink=text)


@pytest.mark.parametrize(
    "text", ["kafka://user:hunter2@a:1/out", "kafka://a:1/out?sasl.password=hunter2", "pulsar://x:hunter2@a:1/a/b/c"]
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    """An error is printed and logged, and the registry can be read by many."""
    with pytest.raises(BadValue) as refused:
        Policies(sink=text)
    assert "hunter2" not in str(refused.value)


def test_a_subscription_that_acknowledges_has_no_sink() -> None:
    """Nobody would acknowledge, and all would come again."""
    with pytest.raises(BadValue, match="acknowledge"):
        Policies(ack=True, sink="kafka://a:1/out")


def test_the_environment_names_settings_of_the_client() -> None:
    """Secrets come from there only."""
    told = {"DELAYLINE_KAFKA_SASL_PASSWORD": "x", "DELAYLINE_KAFKA_SSL_CA_LOCATION": "/ca", "PATH": "/bin"}
    assert from_environment(told) == {"sasl.password": "x", "ssl.ca.location": "/ca"}


def test_the_environment_names_settings_of_pulsars_client() -> None:
    """One that is not known may be a secret under a wrong name: it is refused, and its value is not repeated."""
    assert pulsar.from_environment({"DELAYLINE_PULSAR_TOKEN": "x", "PATH": "/bin"}) == {"TOKEN": "x"}
    with pytest.raises(BadValue, match="DELAYLINE_PULSAR_TOKE") as refused:
        pulsar.from_environment({"DELAYLINE_PULSAR_TOKE": "hunter2"})
    assert "hunter2" not in str(refused.value)

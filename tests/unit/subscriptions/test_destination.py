"""Addresses of sinks: what they may hold, and that nothing secret is repeated."""

from __future__ import annotations

import pytest

from pipeline.brokers import pulsar
from pipeline.config.errors import BadValue
from pipeline.config.servers import check_clear
from pipeline.subscriptions.destination import Destination, check_trusted, from_environment
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
    environment = {"DELAYLINE_KAFKA_SASL_PASSWORD": "x", "DELAYLINE_KAFKA_SSL_CA_LOCATION": "/ca", "PATH": "/bin"}
    assert from_environment(environment) == {"sasl.password": "x", "ssl.ca.location": "/ca"}


def test_the_environment_names_settings_of_pulsars_client() -> None:
    """One that is not known may be a secret under a wrong name: it is refused, and its value is not repeated."""
    assert pulsar.from_environment({"DELAYLINE_PULSAR_TOKEN": "x", "PATH": "/bin"}) == {"TOKEN": "x"}
    with pytest.raises(BadValue, match="DELAYLINE_PULSAR_TOKE") as refused:
        pulsar.from_environment({"DELAYLINE_PULSAR_TOKE": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_secrets_of_the_environment_go_to_servers_that_it_lists() -> None:
    """Whoever may write to the registry had them sent in clear to an address of their own."""
    to = Destination.parse("kafka://theirs:1,h1:9092/t")
    secret = {"DELAYLINE_KAFKA_SASL_PASSWORD": "hunter2", "DELAYLINE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}
    for listed in ("", "h1:9092", "theirs:2,h1:9092", "theirs"):
        with pytest.raises(BadValue, match="DELAYLINE_SINK_SERVERS") as refused:
            check_trusted(to, secret | {"DELAYLINE_SINK_SERVERS": listed}, ["sasl.password"])
        assert "hunter2" not in str(refused.value)
    check_trusted(to, secret | {"DELAYLINE_SINK_SERVERS": "h1:9092, theirs:1"}, ["sasl.password"])
    check_trusted(to, {}, [])


@pytest.mark.parametrize("setting", ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"])
def test_an_address_does_not_weaken_what_the_environment_says(setting: str) -> None:
    """Also at a server that is trusted: others on the way would read it."""
    listed = {"DELAYLINE_SINK_SERVERS": "h1:9092"}
    stated = {"DELAYLINE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "DELAYLINE_KAFKA_SASL_MECHANISMS": "SCRAM-SHA-512"}
    with pytest.raises(BadValue, match="as the environment says"):
        check_trusted(Destination.parse(f"kafka://h1:9092/t?{setting}"), listed | stated, [])
    check_trusted(Destination.parse("kafka://h1:9092/t?security.protocol=sasl_ssl"), listed | stated, [])
    check_trusted(Destination.parse(f"kafka://h1:9092/t?{setting}"), listed, [])


def test_an_address_chooses_no_connection_in_clear_for_a_secret() -> None:
    """The environment may have a password and no word of the protocol."""
    to = "kafka://h1:9092/t?sasl.mechanism=PLAIN&security.protocol="
    secret = {"DELAYLINE_SINK_SERVERS": "h1:9092", "DELAYLINE_KAFKA_SASL_PASSWORD": "hunter2"}
    for protocol in ("SASL_PLAINTEXT", "plaintext"):
        with pytest.raises(BadValue, match="DELAYLINE_KAFKA_SECURITY_PROTOCOL"):
            check_trusted(Destination.parse(f"{to}{protocol}"), secret, ["sasl.password"])
        check_trusted(Destination.parse(f"{to}{protocol}"), {}, [])
    check_trusted(Destination.parse(f"{to}sasl_ssl"), secret, ["sasl.password"])
    asked = secret | {"DELAYLINE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
    check_trusted(Destination.parse(f"{to}SASL_PLAINTEXT"), asked, ["sasl.password"])


def test_a_token_goes_to_another_machine_by_tls_only() -> None:
    """Without it everybody on the way could read the token, and be the client."""
    for server in ("h1:6650", "10.0.0.1:6650", "localhost:6650,h1:6650", "127.0.0.1.example:6650"):
        with pytest.raises(BadValue, match=r"pulsar\+ssl"):
            check_clear("pulsar", server, ["TOKEN"])
        check_clear("pulsar", server, [])
        check_clear("pulsar+ssl", server, ["TOKEN"])
    check_clear("pulsar", "localhost:6650,127.0.0.2:6650,[::1]:6650", ["TOKEN"])


def test_a_token_of_pulsar_is_a_secret() -> None:
    """A file with certificates of others is none."""
    assert pulsar.secrets_in({"DELAYLINE_PULSAR_TOKEN": "x", "PATH": "/bin"}) == ["TOKEN"]
    assert pulsar.secrets_in({"DELAYLINE_PULSAR_TLS_TRUST_CERTS_FILE_PATH": "/ca"}) == []

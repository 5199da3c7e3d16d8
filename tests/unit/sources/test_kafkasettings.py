"""What the environment says of brokers, as settings of the client that Spark's connector has."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")

from pipeline.config.errors import BadSetting
from pipeline.config.sources import Source
from pipeline.sources.kafka import KafkaSource, java_settings
from pipeline.sources.running import door_of, packages
from pipeline.subscriptions.destination import Destination

TO = Destination.parse("kafka://h1:9092,h2:9092/t?client.id=me")


def settings_of(**environment: str) -> dict[str, str]:
    """The settings that follow from variables."""
    return java_settings(TO, "source.a.from", {f"DELAYLINE_KAFKA_{key}": value for key, value in environment.items()})


def test_without_variables_it_is_the_address() -> None:
    """Nothing is made up."""
    assert settings_of() == {"bootstrap.servers": "h1:9092,h2:9092", "client.id": "me"}


def test_an_address_does_not_weaken_what_the_environment_says() -> None:
    """A copied example would send the password in clear."""
    to = Destination.parse("kafka://h1:9092/t?security.protocol=SASL_PLAINTEXT")
    for more in ({}, {"DELAYLINE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}):
        with pytest.raises(BadSetting) as refused:
            java_settings(to, "source.a.from", {"DELAYLINE_KAFKA_SASL_PASSWORD": "hunter2", **more})
        assert refused.value.field == "source.a.from"
        assert "hunter2" not in str(refused.value)


def test_a_user_and_a_password_are_a_login() -> None:
    """Java has one text for both, in which quotes stay what they are."""
    user = {"SASL_USERNAME": "u", "SASL_PASSWORD": 'p"\\q'}
    plain = settings_of(SECURITY_PROTOCOL="SASL_SSL", SASL_MECHANISM="PLAIN", **user)
    assert plain["sasl.jaas.config"].endswith('PlainLoginModule required username="u" password="p\\"\\\\q";')
    assert (plain["security.protocol"], plain["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    scram = settings_of(SASL_MECHANISM="SCRAM-SHA-256", **user)
    assert ".ScramLoginModule " in scram["sasl.jaas.config"]


def test_files_of_keys_are_given_as_java_wants_them(tmp_path: Path) -> None:
    """One store for those that are trusted, and the own key with its certificate."""
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    where = {"SSL_CA_LOCATION": "ca", "SSL_CERTIFICATE_LOCATION": "cert", "SSL_KEY_LOCATION": "key"}
    more = {"SSL_KEY_PASSWORD": "p"}
    paths = {key: str(tmp_path / value) for key, value in where.items()}
    made = settings_of(**paths, **more)
    assert (made["ssl.truststore.location"], made["ssl.truststore.type"]) == (str(tmp_path / "ca"), "PEM")
    assert (made["ssl.keystore.certificate.chain"], made["ssl.keystore.key"]) == ("cert", "key")
    assert made["ssl.key.password"] == "p"


def test_what_is_for_producers_only_is_refused_in_an_address_and_left_out_of_the_environment() -> None:
    """Sinks share the variables; an address is the source's own."""
    assert settings_of(LINGER_MS="5") == settings_of()
    with pytest.raises(BadSetting) as refused:
        door_of(Source("a", "kafka://h:9092/t?linger.ms=5"))
    assert refused.value.field == "source.a.from"


@pytest.mark.parametrize("start", ["{", "{}", '{"u": {"0": 1}}', '{"t": {"0": "1"}}', '{"t": 5}', '{"t": {"0": -1}}'])
def test_a_start_is_a_place_of_the_topic_or_none(start: str) -> None:
    """Spark's own words for it come late. A table has no places that somebody may state."""
    source = KafkaSource(Source("a", "kafka://h:9092/t"))
    assert source.stated(start) is None
    assert source.stated('{"t": {"0": 1}}') == {"t": {"0": 1}}
    assert door_of(Source("a", "delta:/t")).stated('{"t": {"0": 1}}') is None


def test_an_address_names_its_door() -> None:
    """And what Spark needs for it."""
    assert packages([Source("a", "kafka://h:1/t"), Source("b", "delta:/t")]) == packages([Source("a", "kafka:")])
    for wrong in ("amqp://h/t", "kafka://u:p@h:1/t", "kafka://h/t", "orders"):
        with pytest.raises(BadSetting) as refused:
            door_of(Source("a", wrong))
        assert refused.value.field == "source.a.from"
        assert "u:p" not in str(refused.value)

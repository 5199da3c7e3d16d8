"""A client or a connector that is not installed: the error names the package that the page and the project name."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from pipeline.brokers.pulsar import package
from pipeline.config.errors import NoBrokerClient, NoSourceConnector
from pipeline.config.sources import Source
from pipeline.config.sparkversion import kafka_connector
from pipeline.sinks.kafka import KafkaTopic
from pipeline.sources import kafka
from pipeline.subscriptions.destination import Destination
from tests.support.modules import ROOT
from tests.support.operations import PAGE
from tests.support.pages import span_of


def of_kafka() -> object:
    """Connect to Kafka."""
    return KafkaTopic(Destination.parse("kafka://127.0.0.1:9/t"), "p", "g")


@pytest.mark.parametrize(
    ("extra", "module", "use"), [("kafka", "confluent_kafka", of_kafka), ("pulsar", "pulsar", package)]
)
def test_a_client_that_is_not_installed_is_named_as_the_project_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, extra: str, module: str, use: Callable[[], object]
) -> None:
    """Its package is installed by the words of the error, which are those of the page."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NoBrokerClient) as refused:
        use()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"][extra] == [refused.value.package]
    assert str(refused.value).endswith(f"pip install '{refused.value.package}'")
    assert f"'{refused.value.package}'" in PAGE.read_text(encoding="utf-8")


def test_a_connector_that_spark_lacks_is_named_as_the_sessions_of_the_project_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever starts the job by spark-submit adds the package of the line."""

    def java_class(_spark: object, name: str) -> MagicMock:
        if "kafka" in name:
            raise Py4JError(name)
        return MagicMock()

    monkeypatch.setattr(kafka, "java_class", java_class)
    session: Any = object()
    source = kafka.KafkaSource(Source("orders", "kafka://127.0.0.1:9/t"))
    monkeypatch.setattr(source, "_settings", {})
    with pytest.raises(NoSourceConnector) as refused:
        source.stream(session, None)
    assert (refused.value.field, refused.value.package) == ("source.orders.from", kafka_connector())
    assert str(refused.value).endswith(f"--packages {kafka_connector()}")
    assert span_of("kafka.md", "org.apache.spark") == kafka_connector()

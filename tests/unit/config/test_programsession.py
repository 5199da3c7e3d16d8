"""The session of a program, on a Spark of its own and on that of a platform."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="the session needs requirements/all.lock")

from pipeline.config import session as module
from pipeline.config import sparkversion
from pipeline.config.session import program_session

WAREHOUSE = "s3://bucket/warehouse"


class Builder:
    """A builder of sessions that starts no JVM; the session that it gives is itself."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.packages: list[str] | None = None

    def appName(self, _name: str) -> Builder:  # noqa: N802 - Spark's name
        """The name does not matter."""
        return self

    def config(self, key: str, value: str) -> Builder:
        """Note a setting."""
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Builder:  # noqa: N802 - Spark's name
        """The session."""
        return self

    def with_packages(self, packages: Sequence[str]) -> Builder:
        """Note what Maven is asked for, beside Delta."""
        self.packages = list(packages)
        return self


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    """What a program gets from a Spark without a session, whose JARs lie beside `tmp_path/__init__.py`."""
    made = Builder()
    session = SimpleNamespace(builder=made, getActiveSession=lambda: None)
    spark = SimpleNamespace(__file__=str(tmp_path / "__init__.py"), sql=SimpleNamespace(SparkSession=session))
    delta = SimpleNamespace(
        configure_spark_with_delta_pip=lambda made, extra_packages: made.with_packages(extra_packages)
    )
    monkeypatch.setattr(module, "pyspark", spark)
    monkeypatch.setattr(module, "deltaspark", delta)
    monkeypatch.setattr(sparkversion, "pyspark", spark)
    return made


def brings(tmp_path: Path, version: str) -> None:
    """Put Hadoop beside pyspark."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"hadoop-client-api-{version}.jar").touch()


@pytest.mark.parametrize("version", ["3.4.1", "3.4.1-amzn-3"])
def test_a_program_gets_the_connector_of_its_spark_for_a_warehouse_in_s3(
    builder: Builder, tmp_path: Path, version: str
) -> None:
    """Maven has the release that the build of a platform is made from, and not that build."""
    brings(tmp_path, version)
    program_session("a", WAREHOUSE)
    assert builder.packages == ["org.apache.hadoop:hadoop-aws:3.4.1"]
    program_session("a", str(tmp_path))
    assert builder.packages == []


def test_a_spark_without_jars_beside_it_brings_its_own_way_to_s3(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a platform pyspark is `SPARK_HOME/python/pyspark`, and the JARs are elsewhere."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    program_session("a", WAREHOUSE)
    assert builder.packages == []
    assert builder.settings["spark.hadoop.fs.s3a.endpoint"] == "https://store.example"


def test_a_program_that_has_a_session_keeps_its_jars(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They cannot be changed any more. A notebook of a platform has a session before its first line."""
    brings(tmp_path, "3.5.0")
    monkeypatch.setattr(f"{module.__name__}.pyspark.sql.SparkSession.getActiveSession", lambda: builder)
    program_session("a", WAREHOUSE)
    assert builder.packages is None

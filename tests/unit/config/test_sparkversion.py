"""What goes with which Spark, and the pairs that are refused before they fail."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config import sparkversion
from pipeline.config.sparkversion import (
    LINES,
    WrongVersion,
    check_store_of,
    check_versions,
    delta_package,
    hadoop,
    hadoop_aws,
    kafka_connector,
    release,
    spark_line,
)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A pyspark of any version, in a folder of its own."""
    found = SimpleNamespace(__version__="4.2.0", __file__=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(sparkversion, "pyspark", found)
    return found


def arrow_is(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Let another pyarrow be installed."""
    of_others = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "pyarrow" else of_others(name))


@pytest.mark.parametrize(
    ("spark", "arrow", "works"),
    [
        ("4.0.0", "26.0.0", False),
        ("4.0.4", "26.0.1", False),
        ("4.0.4", "25.0.1", True),
        ("4.0.5", "26.0.1", True),
        ("4.1.0", "26.0.1", False),
        ("4.1.3", "27.0.0", False),
        ("4.1.4", "26.0.1", True),
        ("4.2.0", "26.0.1", True),
        ("4.0.2-amzn-0", "26.0.1", False),
    ],
)
def test_an_arrow_with_which_the_schedule_would_fail_later_is_refused_at_once(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, spark: str, arrow: str, *, works: bool
) -> None:
    """Such a job looks healthy until a key has two rows in one batch, and does not come up again then."""
    there.__version__ = spark
    arrow_is(monkeypatch, arrow)
    if works:
        check_versions()
        return
    with pytest.raises(WrongVersion) as refused:
        check_versions()
    assert (refused.value.field, refused.value.value) == ("pyarrow", arrow)
    assert f"with pyspark {spark}" in refused.value.allowed


@pytest.mark.parametrize("spark", ["3.5.9", "4.3.0", "5.0.0", "4.3.0.dev1"])
def test_a_spark_that_is_not_known_is_refused_by_name(there: SimpleNamespace, spark: str) -> None:
    """What delayline uses of it has moved twice; a start would end with a stack trace of Java."""
    there.__version__ = spark
    with pytest.raises(WrongVersion) as refused:
        spark_line()
    assert (refused.value.field, refused.value.value, refused.value.allowed) == ("pyspark", spark, "4.0, 4.1 or 4.2")


def test_the_connectors_are_those_of_the_spark_that_is_there(there: SimpleNamespace) -> None:
    """Parts of two versions do not fit together. A platform's own name is no part of Maven's."""
    there.__version__ = "4.1.3"
    assert kafka_connector() == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"
    assert delta_package() == f"io.delta:delta-spark_4.1_2.13:{metadata.version('delta-spark')}"
    there.__version__ = "4.0.2-amzn-0"
    assert release() == (4, 0, 2)
    assert kafka_connector().endswith(":4.0.0")


def test_the_connector_for_s3_goes_with_the_hadoop_that_spark_brings(there: SimpleNamespace) -> None:
    """Which one that is its JARs say."""
    jars = Path(there.__file__).parent / "jars"
    jars.mkdir()
    with pytest.raises(WrongVersion):
        hadoop()
    (jars / "hadoop-client-api-3.4.2.jar").touch()
    (jars / "hadoop-client-runtime-3.4.2.jar").touch()
    assert hadoop_aws(hadoop()) == "org.apache.hadoop:hadoop-aws:3.4.2"


def test_a_build_of_a_platform_has_the_connector_of_the_release_that_it_is_made_from(there: SimpleNamespace) -> None:
    """Maven has no build of Amazon's, so a hint or a download by its name would lead nowhere."""
    jars = Path(there.__file__).parent / "jars"
    jars.mkdir()
    (jars / "hadoop-client-api-3.4.1-amzn-3.jar").touch()
    assert hadoop() == "3.4.1-amzn-3"
    assert hadoop_aws(hadoop()) == "org.apache.hadoop:hadoop-aws:3.4.1"
    with pytest.raises(WrongVersion) as refused:
        check_store_of(hadoop(), "s3://bucket/warehouse")
    assert refused.value.value == "3.4.1-amzn-3"


def test_a_warehouse_in_s3_is_refused_where_the_connector_would_replace_commits() -> None:
    """Before half a gigabyte of it is downloaded. Spark 4.0 brings Hadoop 3.4.1."""
    with pytest.raises(WrongVersion) as refused:
        check_store_of("3.4.1", "s3://bucket/warehouse")
    assert (refused.value.field, refused.value.value) == ("Hadoop", "3.4.1")
    assert "3.4.2 or newer for s3://bucket/warehouse" in refused.value.allowed
    check_store_of("3.4.2", "s3://bucket/warehouse")
    check_store_of("3.5.0", "s3://bucket/warehouse")


def test_each_line_has_its_names() -> None:
    """They moved in 4.1, and the relation of a stream got an argument in 4.2."""
    assert sorted(LINES) == [(4, 0), (4, 1), (4, 2)]
    assert [LINES[line].runtime.endswith(".runtime") for line in sorted(LINES)] == [False, True, True]
    assert [LINES[line].names_sources for line in sorted(LINES)] == [False, False, True]

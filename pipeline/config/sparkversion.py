"""In what the versions of Spark differ on which delayline runs, each difference with its reason.

No other module looks at a version. `make test-matrix` runs the tests on each line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pipeline.config.errors import NotAllowed
from pipeline.config.lazyspark import pyspark

_STREAMING = "org.apache.spark.sql.execution.streaming"
_FILE_MANAGER = "FileSystemBasedCheckpointFileManager"
_NUMBERS = re.compile(r"\d+")
_HADOOP = "hadoop-client-api-"
"""How the file begins whose name says which Hadoop it is."""
Version = tuple[int, ...]


class WrongVersion(NotAllowed):
    """Two packages are there that cannot work together, or a Spark that delayline does not know.

    Install one of those that are named. `docs/where-it-runs.md` says what goes with what.
    """


@dataclass(frozen=True)
class SparkLine:
    """What the releases of one line have, such as those of 4.1.

    Attributes:
        runtime: the package of the classes that run a stream. They moved in 4.1.
        file_manager: the class that writes the files of a checkpoint. It moved in 4.1, to another package.
        names_sources: whether the relation of a stream takes a name of its source. It is a further argument in 4.2.
        has_arrow_udf: whether a function of Arrow's arrays may be one of columns. Before 4.1 `arrowudf` goes by pandas.
        kafka: the release of Spark's connector for Kafka, with which all releases of the line work. A line keeps its
            interfaces, and not each release of the connector is to be had.
        arrow_26_from: the first release whose `applyInPandasWithState` works with pyarrow 26. Earlier ones fail with
            the first batch in which a key has two rows, and at each restart: pyarrow 26 lets nobody change an array
            that PySpark fills.
    """

    runtime: str
    file_manager: str
    names_sources: bool
    has_arrow_udf: bool
    kafka: str
    arrow_26_from: Version


LINES: Mapping[Version, SparkLine] = {
    (4, 0): SparkLine(
        _STREAMING,
        f"{_STREAMING}.{_FILE_MANAGER}",
        names_sources=False,
        has_arrow_udf=False,
        kafka="4.0.0",
        arrow_26_from=(4, 0, 5),
    ),
    (4, 1): SparkLine(
        f"{_STREAMING}.runtime",
        f"{_STREAMING}.checkpointing.{_FILE_MANAGER}",
        names_sources=False,
        has_arrow_udf=True,
        kafka="4.1.1",
        arrow_26_from=(4, 1, 4),
    ),
    (4, 2): SparkLine(
        f"{_STREAMING}.runtime",
        f"{_STREAMING}.checkpointing.{_FILE_MANAGER}",
        names_sources=True,
        has_arrow_udf=True,
        kafka="4.2.0",
        arrow_26_from=(4, 2, 0),
    ),
}
_SUPPORTED = "4.0, 4.1 or 4.2"
_NEW_ARROW: Version = (26,)
CONDITIONAL_PUTS: Version = (3, 4, 2)
"""The first Hadoop whose connector for S3 puts an object only where none is, as each commit of delayline does."""


def version_of(text: str) -> Version:
    """The first three numbers of a version. Platforms add names of their own: `4.0.2-amzn-0`."""
    return tuple(map(int, _NUMBERS.findall(text)[:3]))


def release() -> Version:
    """The release of Spark that is there, such as (4, 1, 4)."""
    return version_of(_there())


def _there() -> str:
    return str(pyspark.__version__)


def spark_line() -> SparkLine:
    """What the Spark that is there has.

    Raises:
        WrongVersion: it is of another line.
    """
    found = LINES.get(release()[:2])
    if found is None:
        raise WrongVersion("pyspark", _there(), _SUPPORTED)
    return found


def check_versions() -> None:
    """Refuse packages that start and fail later.

    Raises:
        WrongVersion: the Spark is not known, or its stateful streams fail with the pyarrow that is there.
    """
    known, arrow = spark_line(), metadata.version("pyarrow")
    if version_of(arrow) >= _NEW_ARROW and release() < known.arrow_26_from:
        needed = _text(known.arrow_26_from)
        raise WrongVersion("pyarrow", arrow, f"less than 26 with pyspark {_there()}, or pyspark {needed} or newer")


def check_store_of(hadoop: str, warehouse: str) -> None:
    """Refuse a warehouse in S3 whose commits the connector could not make, before the connector is downloaded.

    Args:
        hadoop: the version of Hadoop.
        warehouse: its address.

    Raises:
        WrongVersion: the connector of this Hadoop replaces the commit of another writer.
    """
    if version_of(hadoop) < CONDITIONAL_PUTS:
        allowed = f"3.4.2 or newer for {warehouse}, which Spark 4.1 and 4.2 bring; or a warehouse elsewhere"
        raise WrongVersion("Hadoop", hadoop, allowed)


def hadoop() -> str:
    """The version of the Hadoop that the installed pyspark brings; 3.4.1 with Spark 4.0, 3.5.0 with 4.2.

    Raises:
        WrongVersion: it brings none. A Spark without Hadoop is started by spark-submit.
    """
    found = hadoop_there()
    if found is None:
        raise WrongVersion("Hadoop", None, "a pyspark that brings it; start by spark-submit otherwise")
    return found


def hadoop_there() -> str | None:
    """The version of the Hadoop that lies beside pyspark; None: none does, as on a platform with a Spark of its own."""
    jars = Path(str(pyspark.__file__)).parent / "jars"
    return next((path.stem.removeprefix(_HADOOP) for path in jars.glob(f"{_HADOOP}*.jar")), None)


def hadoop_aws(version: str) -> str:
    """Hadoop's connector for S3, as Maven names it: it works with one version of Hadoop only.

    Builds of platforms, as `3.4.1-amzn-3`, are not in Maven; the release that they are made from is.
    """
    return f"org.apache.hadoop:hadoop-aws:{_text(version_of(version))}"


def kafka_connector() -> str:
    """Spark's connector for Kafka, as Maven names it: it works with one line of Spark only."""
    return kafka_of(spark_line())


def kafka_of(line: SparkLine) -> str:
    """The connector for Kafka of a line, as Maven names it."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{line.kafka}"


def delta_package() -> str:
    """Delta for the Spark that is there, as Maven names it."""
    return delta_of(release()[:2])


def delta_of(line: Version) -> str:
    """Delta for a line, as Maven names it: one release has a JAR for each."""
    return f"io.delta:delta-spark_{_text(line)}_2.13:{metadata.version('delta-spark')}"


def _text(version: Version) -> str:
    return ".".join(map(str, version))

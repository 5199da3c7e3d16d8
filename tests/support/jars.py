"""JARs of Spark, fetched by one process while others wait: the folders of Ivy are not made for two at once.

`python -m tests.support.jars` fetches what the tests need; `make test` does so beside the first tests.
`python -m tests.support.jars lock` writes `conf/jars.lock` from what Spark resolves; `make lock` does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from pipeline.config.jars import LOCK, jar_path, sum_of
from pipeline.config.sparkversion import (
    LINES,
    Version,
    delta_of,
    delta_package,
    hadoop,
    hadoop_aws,
    kafka_connector,
    kafka_of,
)
from tests.support.alone import alone

_IVY = Path.home() / ".ivy2.5.2" / "jars"
"""Where Spark puts them. Where it is told another folder nothing is found here, and Ivy looks again."""


HADOOP: Mapping[Version, str] = {(4, 0): "3.4.1", (4, 1): "3.4.2", (4, 2): "3.5.0"}
"""What each line of Spark brings."""


def needed() -> tuple[str, ...]:
    """What the tests need of the Spark that is there, as `group:name:version`."""
    return delta_package(), hadoop_aws(hadoop()), kafka_connector()


def fetch(*packages: str) -> None:
    """Have Spark fetch packages that are not there yet."""
    with alone("jars"):
        if not all(place_of(each).exists() for each in packages):
            _submit(packages)


def place_of(package: str) -> Path:
    """Where Spark puts a package, as `group:name:version`."""
    group, name, number = package.split(":")
    return _IVY / f"{group}_{name}-{number}.jar"


def _submit(packages: tuple[str, ...], program: str = "") -> str:
    """Let spark-submit resolve them for a program that does nothing; what it prints."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(program, encoding="utf-8")
        command = [str(submit), "--packages", ",".join(packages), str(path)]
        return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


def wanted() -> Iterator[tuple[str, ...]]:
    """What a start may ask for together, with each line of Spark: which versions come depends on that."""
    for line, known in LINES.items():
        delta, s3, kafka = delta_of(line), hadoop_aws(HADOOP[line]), kafka_of(known)
        yield from ((delta,), (delta, s3), (delta, kafka), (delta, s3, kafka))


def lock() -> str:
    """The sums of all JARs that a start may ask for."""
    found = {jar for packages in wanted() for jar in _submit(packages, _PRINT).split()}
    return "".join(f"{sum_of(path)}  {path.name}\n" for path in sorted(map(jar_path, found)))


_PRINT = """
from pyspark import SparkConf, SparkContext

# A context would copy all of them first.
SparkContext._ensure_initialized()
for jar in SparkConf().get("spark.jars").split(","):
    print(jar)
"""


if __name__ == "__main__":
    if sys.argv[1:] == ["lock"]:
        LOCK.write_text(lock(), encoding="utf-8")
    else:
        fetch(*needed())

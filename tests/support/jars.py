"""JARs of Spark, fetched by one process while others wait: the folders of Ivy are not made for two at once.

`python -m tests.support.jars` fetches what the tests need; `make test` does so beside the first tests.
`python -m tests.support.jars lock` writes `conf/jars.lock` from what Spark resolves; `make lock` does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from benchmarks.support.standalone import DELTA
from pipeline.config.jars import LOCK, jar_path, sum_of
from pipeline.config.session import HADOOP_AWS, KAFKA
from tests.support.alone import alone

_IVY = Path.home() / ".ivy2.5.2" / "jars"
"""Where Spark puts them. Where it is told another folder nothing is found here, and Ivy looks again."""


NEEDED = (DELTA, HADOOP_AWS, KAFKA)
"""As `group:name:version`."""


def fetch(*packages: str) -> None:
    """Have Spark fetch packages that are not there yet."""
    names = [f"{group}_{name}-{number}.jar" for group, name, number in (each.split(":") for each in packages)]
    with alone("jars"):
        if not all((_IVY / name).exists() for name in names):
            _submit(packages)


def _submit(packages: tuple[str, ...], program: str = "") -> str:
    """Let spark-submit resolve them for a program that does nothing; what it prints."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(program, encoding="utf-8")
        command = [str(submit), "--packages", ",".join(packages), str(path)]
        return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


def lock() -> str:
    """The sums of all JARs that a start may ask for: which versions come depends on what is asked for together."""
    found = set[str]()
    for more in ((), (HADOOP_AWS,), (KAFKA,), (HADOOP_AWS, KAFKA)):
        found |= set(_submit((DELTA, *more), _PRINT).split())
    return "".join(f"{sum_of(path)}  {path.name}\n" for path in sorted(map(jar_path, found)))


_PRINT = """
from pyspark.sql import SparkSession
for jar in SparkSession.builder.getOrCreate().sparkContext.getConf().get("spark.jars").split(","):
    print(jar)
"""


if __name__ == "__main__":
    if sys.argv[1:] == ["lock"]:
        LOCK.write_text(lock(), encoding="utf-8")
    else:
        fetch(*NEEDED)

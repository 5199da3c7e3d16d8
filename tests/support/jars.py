"""JARs of Spark, fetched by one process while others wait: the folders of Ivy are not made for two at once.

`python -m tests.support.jars` fetches what the tests need; `make test` does so beside the first tests.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from benchmarks.support.standalone import DELTA
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


def _submit(packages: tuple[str, ...]) -> None:
    """Let spark-submit resolve them for a program that does nothing."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with TemporaryDirectory() as folder:
        program = Path(folder, "nothing.py")
        program.touch()
        command = [str(submit), "--packages", ",".join(packages), str(program)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603


if __name__ == "__main__":
    fetch(*NEEDED)

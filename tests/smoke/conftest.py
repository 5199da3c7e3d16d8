"""What the smoke tests have before the first of them starts a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jars import fetch, needed
from tests.support.spark import QUICK_JVM


@pytest.fixture(scope="session", autouse=True)
def jars() -> None:
    """Two first starts at once would fetch into one folder, and a start that fetches may take minutes."""
    fetch(*needed())


@pytest.fixture(scope="session", autouse=True)
def quick_jvms() -> Iterator[None]:
    """Each JVM that a process of these tests starts for Spark lives for a minute.

    `spark-submit` puts these options before those of a session, which a session would replace if they were settings.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_SUBMIT_OPTS", QUICK_JVM)
        environment.setenv("SPARK_LAUNCHER_OPTS", QUICK_JVM)
        yield

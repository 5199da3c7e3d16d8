"""JARs are those of the lock: what a mirror or a cache changed, or added, is not worked with."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the session needs requirements/all.lock")
pytest.importorskip("delta", reason="the session needs requirements/all.lock")

from pyspark.sql import SparkSession

from pipeline.config import jars, session
from pipeline.config.jars import LOCK, StrangeJar, check_jars, jar_path, locked
from tests.support.jars import wanted

LINE = re.compile(r"[0-9a-f]{64}  [A-Za-z0-9._-]+\.jar")


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the one JAR that is locked."""
    folder = tmp_path / "my ivy" / "jars"
    folder.mkdir(parents=True)
    (folder / "a-1.jar").write_bytes(b"a")
    lock = tmp_path / "jars.lock"
    lock.write_text(f"{hashlib.sha256(b'a').hexdigest()}  a-1.jar\n", encoding="utf-8")
    monkeypatch.setattr(jars, "LOCK", lock)
    return folder


def test_the_lock_holds_names_and_sums_of_all_that_a_start_asks_for() -> None:
    """No address can hide in it."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    for package in {each for packages in wanted() for each in packages}:
        group, name, version = package.split(":")
        assert f"{group}_{name}-{version}.jar" in locked()


def test_a_jar_with_another_sum_and_one_that_nobody_asked_for_are_refused(ivy: Path) -> None:
    """A repository says its own sums, so it can say others for other files."""
    own = ivy.parent / "own.jar"
    own.write_bytes(b"of the operator, named in spark.jars")
    check_jars([ivy / "a-1.jar", own])
    (ivy / "b-1.jar").write_bytes(b"b")
    with pytest.raises(StrangeJar) as added:
        check_jars([ivy / "a-1.jar", ivy / "b-1.jar"])
    assert (added.value.path, added.value.expected) == (str(ivy / "b-1.jar"), None)
    (ivy / "b-1.jar").unlink()
    check_jars([ivy / "a-1.jar"])
    (ivy / "a-1.jar").write_bytes(b"another")
    with pytest.raises(StrangeJar) as changed:
        check_jars([ivy / "a-1.jar"])
    assert changed.value.expected == hashlib.sha256(b"a").hexdigest()
    # It was removed, and Spark has resolved it again.
    (ivy / "a-1.jar").unlink()
    (ivy / "a-1.jar").write_bytes(b"a")
    check_jars([ivy / "a-1.jar"])


def test_a_session_whose_jars_are_strange_is_stopped(ivy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a warehouse is touched by them. The folder of Ivy may have any name."""
    stopped = list[bool]()
    conf = SimpleNamespace(get=lambda _: (ivy / "a-1.jar").as_uri())
    context = SimpleNamespace(getConf=lambda: conf)
    made: Any = SimpleNamespace(sparkContext=context, stop=lambda: stopped.append(True))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: made)
    (ivy / "a-1.jar").write_bytes(b"another")
    with pytest.raises(StrangeJar):
        session.local_session("a")
    assert stopped == [True]


def test_a_path_is_read_from_what_spark_says() -> None:
    """A URI when Spark resolved it, and as it was typed when an operator names it."""
    assert jar_path("file:///home/a%20b/x.jar") == jar_path("file:/home/a%20b/x.jar") == Path("/home/a b/x.jar")
    assert jar_path("/opt/a%20b.jar") == Path("/opt/a%20b.jar")

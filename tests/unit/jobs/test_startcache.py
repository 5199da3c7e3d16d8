"""What a start of the command keeps for the next ones."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

pytest.importorskip("pyspark", reason="the command needs requirements/all.lock")
pytest.importorskip("delta", reason="the command needs requirements/all.lock")

from jobs.commands.startcache import Kept, lacking

STUB = "org/apache/spark/unused/UnusedStubClass.class"
"""Spark's own JARs have it, those of its connectors too."""


def jar(path: Path, *classes: str) -> str:
    """A JAR that holds some classes."""
    with ZipFile(path, "w") as made:
        for name in (*classes, "module-info.class", STUB, "META-INF/MANIFEST.MF"):
            made.writestr(name, "")
    return str(path)


def session_with(*jars: str) -> Any:  # noqa: ANN401 - what is asked of a session
    """A session that has resolved some JARs."""
    conf = SimpleNamespace(get=lambda _: ",".join(f"file://{each}" for each in jars))
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """What is kept by somebody who has started nothing yet."""
    java = tmp_path / "java"
    java.touch()
    return Kept.of(java, ["/warehouse"], {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_the_second_start_names_the_jars_and_keeps_the_classes(tmp_path: Path, kept: Kept) -> None:
    """The first one has neither; the third one uses both."""
    assert (kept.jars(), kept.java_options()) == ([], "")
    delta = jar(tmp_path / "delta.jar", "io/delta/A.class")
    kept.keep_jars(session_with(delta))
    assert kept.jars() == [delta]
    archive = kept.folder / f"classes-{kept.name}.jsa"
    assert f"-XX:ArchiveClassesAtExit={archive} " in kept.java_options()
    archive.write_bytes((0xF00BABA8).to_bytes(4, "little") + b"classes")
    assert f"-XX:SharedArchiveFile={archive} " in kept.java_options()


def test_an_archive_that_is_being_written_is_neither_used_nor_written_again(tmp_path: Path, kept: Kept) -> None:
    """Java goes on with it when the command has ended; what a killed one left is written again."""
    kept.keep_jars(session_with(jar(tmp_path / "delta.jar", "io/delta/A.class")))
    archive = kept.folder / f"classes-{kept.name}.jsa"
    archive.write_bytes(bytes(4) + b"half")
    assert kept.java_options() == ""
    os.utime(archive, (1, 1))
    assert "ArchiveClassesAtExit" in kept.java_options()
    # That start goes on with it now.
    assert kept.java_options() == ""


def test_jars_that_are_gone_are_resolved_again(tmp_path: Path, kept: Kept) -> None:
    """Somebody may have emptied the folder in which Spark keeps them; a list may be damaged."""
    delta = jar(tmp_path / "delta.jar", "io/delta/A.class")
    kept.keep_jars(session_with(delta))
    Path(delta).unlink()
    assert (kept.jars(), kept.java_options()) == ([], "")
    (kept.folder / f"jars-{kept.name}.txt").write_text("")
    assert kept.jars() == []


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, kept: Kept) -> None:
    """Each start is the first one then, and works."""
    (tmp_path / "cache").write_text("not a folder")
    kept.keep_jars(session_with(jar(tmp_path / "delta.jar", "io/delta/A.class")))
    assert (kept.jars(), kept.java_options()) == ([], "")


def test_another_java_and_another_storage_keep_their_own(tmp_path: Path, kept: Kept) -> None:
    """An archive is for one Java and one list of JARs."""
    cache, other = {"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "other"
    other.touch()
    names = {Kept.of(tmp_path / "java", [path], cache).name for path in ("/a", "/b", "s3://bucket/a")}
    assert len(names | {Kept.of(other, ["/a"], cache).name}) == 3
    assert kept.name in names


def test_jars_whose_classes_spark_brings_are_left_out(tmp_path: Path) -> None:
    """They would come first in the class path, in an older version."""
    delta, old = jar(tmp_path / "delta.jar", "io/delta/A.class"), jar(tmp_path / "old.jar", "com/json/B.class")
    own = jar(tmp_path / "own.jar", "com/json/B.class", "com/json/C.class")
    assert lacking([delta, old], [own]) == [delta]

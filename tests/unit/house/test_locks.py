"""The lock files: pinned, hashed, without addresses, and telling one story."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from pipeline.config.sparkversion import LINES, version_of
from tests.support.matrix import lines
from tests.support.modules import ROOT

FOLDER = ROOT / "requirements"
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)(?P<marker> ;[^\\]*)? \\$", re.MULTILINE)
LINE = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def pins(text: str) -> set[tuple[str, str, str]]:
    """Name, version and marker of each pin of a lock."""
    return {(found["name"], found["version"], (found["marker"] or "").strip()) for found in PIN.finditer(text)}


def strangers(text: str) -> list[str]:
    """The lines of a lock that are neither a pin nor a hash."""
    return [line for line in text.splitlines() if not PIN.fullmatch(line) and not LINE.fullmatch(line)]


@pytest.mark.parametrize("name", ["core", "all", "uv", "site", "spark-4.0", "spark-4.1"])
def test_a_lock_holds_pins_and_hashes_only(name: str) -> None:
    """No address, no path and no unpinned name can hide in a lock."""
    text = (FOLDER / f"{name}.lock").read_text(encoding="utf-8")
    assert pins(text)
    assert strangers(text) == []


def test_the_locks_agree() -> None:
    """What the core lock pins, the full lock pins alike, so that one .venv serves both."""
    core, full = ((FOLDER / f"{name}.lock").read_text(encoding="utf-8") for name in ("core", "all"))
    assert pins(core) - pins(full) == set()


def test_the_other_lines_of_spark_are_locked_by_a_release_that_the_wheel_allows() -> None:
    """`make test-matrix` tests what somebody may install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = next(each for each in map(Requirement, project["optional-dependencies"]["spark"]) if each.name == "pyspark")
    assert [each for each in lines().values() if not asked.specifier.contains(each)] == []
    assert [version_of(each) for each in lines()] == list(LINES)
    for line in ("4.0", "4.1"):
        names = {name for name, _, _ in pins((FOLDER / f"spark-{line}.lock").read_text(encoding="utf-8"))}
        assert names == {"pyspark", "py4j"}


def test_what_the_wheel_asks_for_is_in_the_lock() -> None:
    """`docs/security.md` installs the locks, and then the wheel alone: nothing it needs may be missing, or another."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        Requirement(each) for each in (*project["dependencies"], *extras["spark"], *extras["kafka"], *extras["pulsar"])
    ]
    known = {name: version for name, version, _ in pins((FOLDER / "all.lock").read_text(encoding="utf-8"))}
    assert len(wanted) > 8
    assert [str(each) for each in wanted if not each.specifier.contains(known.get(each.name, "0"))] == []


@pytest.mark.parametrize("line", ["--index-url somewhere", "numpy>=2", "./wheels/x.whl", "-e ."])
def test_a_planted_line_is_reported(line: str) -> None:
    """The check sees an address, a loose version and a path."""
    assert strangers(f"{line}\n") == [line]

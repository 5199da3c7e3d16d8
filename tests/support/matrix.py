"""The tests that need a JVM on each line of Spark, and a table of what came of them. `make test-matrix` runs this.

The line of the lock is that of `.venv`. The others have environments of their own in `.matrix`: the same lock with
another Spark, whose version and sums are in `requirements/spark-LINE.lock`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.modules import ROOT

FOLDER = ROOT / ".matrix"
TIERS = ("tests/spark", "tests/stream", "tests/smoke")
MOVES = "tests/soak/test_spark_lines.py"
"""What real processes do on each line, and a warehouse that moves between them."""
_LOCK = ROOT / "requirements" / "all.lock"
_PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+).*\n(?:    .*\n)+", re.MULTILINE)
_LEFT_OPEN = ("-W", "ignore:unclosed <socket:ResourceWarning")
"""PySpark before 4.2 leaves its sockets to the collector of garbage, and here a warning is an error."""
_SEVERAL = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""As `make test`: files that make a session of their own need a third process (`tests/support/sharing.py`)."""


@dataclass(frozen=True)
class Outcome:
    """What came of some tests.

    Attributes:
        spark: the release.
        what: which tests.
        passed, failed, skipped: how many.
        seconds: how long they took.
    """

    spark: str
    what: str
    passed: int
    failed: int
    skipped: int
    seconds: float


def lines() -> dict[str, str]:
    """The lines of Spark, and the release of each that is tested."""
    others = {path.stem.removeprefix("spark-"): path for path in (ROOT / "requirements").glob("spark-*.lock")}
    found = {line: pinned(path.read_text(encoding="utf-8"))["pyspark"] for line, path in others.items()}
    whole = pinned(_LOCK.read_text(encoding="utf-8"))["pyspark"]
    return dict(sorted({**found, whole.rpartition(".")[0]: whole}.items()))


def pinned(text: str) -> dict[str, str]:
    """The versions of a lock, by name."""
    return {found["name"]: found["version"] for found in _PIN.finditer(text)}


def python_of(line: str) -> Path:
    """The interpreter of a line. It may not be there yet."""
    has_its_own = (ROOT / "requirements" / f"spark-{line}.lock").exists()
    return FOLDER / line / "bin" / "python" if has_its_own else Path(sys.executable)


def with_other_spark(lock: str, other: str) -> str:
    """A lock in which some packages have the version and the sums of another one."""
    names = pinned(other)
    kept = _PIN.sub(lambda found: "" if found["name"] in names else found[0], lock)
    return kept.rstrip("\n") + "\n" + other


def environment(line: str) -> None:
    """Make the environment of a line, or bring it up to date."""
    other = ROOT / "requirements" / f"spark-{line}.lock"
    if not other.exists():
        return
    FOLDER.mkdir(exist_ok=True)
    lock, text = FOLDER / f"{line}.lock", with_other_spark(_LOCK.read_text(), other.read_text())
    if not lock.exists() or lock.read_text(encoding="utf-8") != text:
        lock.write_text(text, encoding="utf-8")
    place = f".matrix/{line}"
    _run(["make", f"VENV={place}", f"ALL=.matrix/{line}.lock", f"{place}/.full.stamp"])


def run_tests(python: Path, spark: str, what: str, words: Sequence[str]) -> Outcome:
    """Run pytest with an interpreter and some words."""
    report = FOLDER / f"{spark}-{what}.xml"
    report.unlink(missing_ok=True)
    FOLDER.mkdir(exist_ok=True)
    _run([str(python), "-m", "pytest", "-q", *words, f"--junitxml={report}"], check=False)
    return outcome(spark, what, report.read_text(encoding="utf-8"))


def outcome(spark: str, what: str, report: str) -> Outcome:
    """What a report of pytest in JUnit's form says."""
    suite = ET.fromstring(report).find("testsuite")  # noqa: S314 - written by our own run
    assert suite is not None
    count = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    return Outcome(spark, what, passed, failed, count["skipped"], float(suite.attrib["time"]))


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes, a line each."""
    head = f"{'Spark':8}{'tests':14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"
    rows = (
        f"{each.spark:8}{each.what:14}{each.passed:8}{each.failed:8}{each.skipped:9}{each.seconds:9.0f}"
        for each in outcomes
    )
    return "\n".join([head, *rows])


def main(chosen: Sequence[str]) -> int:
    """Test some lines, or all; 0: everything passed. A warehouse is moved between them when all are tested."""
    known = lines()
    if unknown := set(chosen) - set(known):
        sys.stderr.write(f"{', '.join(sorted(unknown))}: allowed: {', '.join(known)}\n")
        return 2
    outcomes = []
    for line in chosen or known:
        environment(line)
        outcomes.append(run_tests(python_of(line), known[line], "JVM", [*_SEVERAL, *_LEFT_OPEN, *TIERS]))
    if not chosen:
        outcomes.append(run_tests(Path(sys.executable), "all", "lines", ["-m", "soak", MOVES]))
    sys.stdout.write(f"{table(outcomes)}\n")
    return int(any(each.failed or not each.passed for each in outcomes))


def _run(command: Sequence[str], *, check: bool = True) -> None:
    subprocess.run(command, cwd=ROOT, check=check)  # noqa: S603 - our own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

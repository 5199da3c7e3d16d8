"""The table of the matrix says what was run, and a line of Spark has its own packages and the rest of the lock."""

from __future__ import annotations

from tests.support.matrix import Outcome, outcome, pinned, table, with_other_spark

LOCK = """\
numpy==2.4.6 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
pyspark==4.2.0 \\
    --hash=sha256:bb
zipp==3.23.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
"""
OTHER = """\
py4j==0.10.9.9 \\
    --hash=sha256:dd
pyspark==4.0.5 \\
    --hash=sha256:ee
"""
REPORT = """\
<testsuites name="pytest tests">
  <testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="65.4" />
</testsuites>
"""


def test_another_spark_takes_the_place_of_the_one_of_the_lock() -> None:
    """With its sums; everything else is as it was tested."""
    found = with_other_spark(LOCK, OTHER)
    assert pinned(found) == {"numpy": "2.4.6", "zipp": "3.23.0", "py4j": "0.10.9.9", "pyspark": "4.0.5"}
    assert found.count("sha256:") == 5
    assert "sha256:bb" not in found


def test_errors_count_as_failures_and_what_was_left_out_did_not_pass() -> None:
    """Else a run in which nothing could start would look well."""
    found = outcome("4.0.5", "JVM", REPORT)
    assert found == Outcome("4.0.5", "JVM", passed=4, failed=3, skipped=3, seconds=65.4)
    head, row = table([found]).splitlines()
    assert head.split() == ["Spark", "tests", "passed", "failed", "skipped", "seconds"]
    assert row.split() == ["4.0.5", "JVM", "4", "3", "3", "65"]

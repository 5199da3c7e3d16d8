"""What the mains refuse before anything starts; `tests/smoke/test_submit.py` has one of it as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the mains need requirements/all.lock")

from jobs.main import REFUSED, run
from pipeline.config.stages import ALL_STAGES


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        ("[settings]\nhorizon_ms = -1", "horizon_ms"),
        ("[settings]\nhorizont_ms = 1", "horizont_ms"),
        ("[clock", ""),
        ('[settings]\npartitions = "2"', "partitions"),
    ],
)
def test_a_bad_profile_is_refused_with_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], profile: str, field: str
) -> None:
    """The line names the file and the field; no warehouse is made."""
    path, warehouse = tmp_path / "bad.toml", tmp_path / "w"
    path.write_text(profile, encoding="utf-8")
    assert run(ALL_STAGES, ["--profile", str(path), "--warehouse", str(warehouse)]) == REFUSED
    (line,) = "".join(capfd.readouterr()).splitlines()
    assert str(path) in line
    assert field in line
    assert not warehouse.exists()

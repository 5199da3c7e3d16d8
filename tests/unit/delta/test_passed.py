"""How far the query of another stage is: by the batches that it has done, and not by those that it has begun."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="checkpoints need requirements/all.lock")

from pipeline.delta.checkpoints import Checkpoint, Passed
from pipeline.storage.files import Files


def test_a_stage_has_passed_an_instant_when_a_batch_at_it_is_done(tmp_path: Path) -> None:
    """After a start what is due at once would come before what was due earlier and waits in the state."""
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    passed = Passed(Checkpoint(Files(), str(tmp_path)))
    assert not passed.has_passed(1)

    def begin(batch: int, instant: int) -> None:
        lines = ["v1", "{}", f'{{"instant": {instant}}}', '{"reservoirVersion": 1, "index": 0}']
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))

    begin(0, 1_000)
    assert not passed.has_passed(1_000)
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert passed.has_passed(1_000)
    begin(1, 2_000)
    assert not passed.has_passed(1_001)
    (tmp_path / "commits" / "1").write_text("v1\n{}")
    assert [passed.has_passed(each) for each in (2_001, 2_000, 5)] == [False, True, True]

"""The command that says how far sources are, and the doctor's word on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.create import create_all
from pipeline.doctor.examine import examine
from pipeline.storage.files import Files
from pipeline.subscriptions.sourcenotes import SourceState, source_states
from tests.support.invoked import invoke

READS = SourceState("orders", "kafka://h:1/orders", 1_200, {"orders": {"0": 1_200}}, 34, 1_000)


def test_sources_are_listed_with_how_far_they_are(tmp_path: Path) -> None:
    """And why one stands still, which the doctor warns of."""
    root = str(tmp_path)
    create_all(root)

    def printed(*more: str) -> str:
        result = invoke(["sources", "--warehouse", root, *more])
        assert result.exit_code == 0
        return result.output

    assert "No source has begun" in printed()
    states = source_states(Files(), root)
    states.put(READS.name, READS)
    assert "orders  taken 1,200  behind 34  reading" in printed()
    assert json.loads(printed("--json"))[0]["place"] == {"orders": {"0": 1_200}}
    states.put("other", SourceState("other", "pulsar://h:1/a/b/c", 3, unknown="nobody counts"))
    assert "other  taken 3  behind unknown (nobody counts)  reading" in printed()
    assert "source_behind" in {each.what for each in examine(root, 2_000).findings}
    states.put("orders", SourceState("orders", READS.address, error="the broker is away"))
    assert "behind unknown  stands still: the broker is away" in printed()
    (found,) = (each for each in examine(root, 2_000).findings if each.check == "sources")
    assert (found.what, found.subject) == ("source_stands_still", "orders")

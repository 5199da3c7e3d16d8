"""`delayline receive` when what it had still to read is gone."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.delta.deltars import open_table, path_of
from schemas import DELIVERIES
from tests.support.client import new_warehouse
from tests.unit.jobs.test_cli import delivered, run


def test_receive_that_was_away_for_too_long_begins_anew_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have cut the log meanwhile: with the first word all that is there comes, with the other what is new."""
    root = str(tmp_path)
    new_warehouse(root)
    delivered(root, b"one")
    log = Path(path_of(root, DELIVERIES), "_delta_log")

    def cut(_: float) -> None:
        for payload in (b"two", b"three"):
            delivered(root, payload)
        open_table(root, DELIVERIES).create_checkpoint()
        for entry in sorted(log.glob("*.json"))[:-1]:
            entry.unlink()

    monkeypatch.setattr("jobs.commands.receive.time", SimpleNamespace(sleep=cut))
    refused = run("receive", "-w", root)
    assert (refused.exit_code, "cannot be read any more" in refused.stderr) == (1, True)
    said = run("receive", "-w", root, "--no-follow", "--json", "--start", "earliest").stdout
    assert [json.loads(text)["payload"] for text in said.splitlines()] == ["one", "two", "three"]
    monkeypatch.setattr("jobs.commands.receive.time", SimpleNamespace(sleep=lambda _: delivered(root, b"four")))
    said = run("receive", "-w", root, "--json", "-n", "1", "--start", "latest").stdout
    assert [json.loads(text)["payload"] for text in said.splitlines()] == ["four"]

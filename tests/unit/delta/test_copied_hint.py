"""The hint of a log in a copy of a warehouse in use may name a checkpoint that the copy lacks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")

from deltalake.exceptions import DeltaError

from pipeline.client.create import create_all
from pipeline.delta.deltars import open_table
from schemas import INBOX
from tests.support.operations import lines


def test_a_copy_whose_hint_names_what_it_lacks_is_opened_after_the_commands_of_the_page(tmp_path: Path) -> None:
    """A copy part by part ended with a table that nobody could open, when a checkpoint was written meanwhile."""
    copy = f"{tmp_path}/copy.live"
    create_all(copy)
    Path(copy, "inbox", "_delta_log", "_last_checkpoint").write_text(json.dumps({"version": 0, "size": 3}))
    with pytest.raises(DeltaError):
        open_table(copy, INBOX)
    (command,) = [each for each in lines() if each.startswith("find") and "$B.live" in each]
    subprocess.run(["bash", "-ec", command], env={**os.environ, "B": f"{tmp_path}/copy"}, check=True)  # noqa: S603, S607
    assert open_table(copy, INBOX).version() == 0

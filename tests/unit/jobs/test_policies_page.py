"""The page of policies, whose blocks a test of minutes types: here what needs no job is typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from tests.support.guide import BEGIN, END, check, steps
from tests.support.invoked import invoke
from tests.support.modules import ROOT

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")


def test_nothing_that_may_be_typed_stands_outside_the_guide_of_the_policies() -> None:
    """Nobody would notice that it does not work."""
    before, _, rest = PAGE.partition(BEGIN)
    assert re.findall(r"^```\w+$", before + rest.partition(END)[2], re.MULTILINE) == []


def test_policies_that_need_no_job_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands before the job runs."""
    monkeypatch.chdir(tmp_path)
    count = 0
    for kind, text, printed in steps(PAGE):
        if "delayline run" in text:
            break
        if kind == "shell" and printed is not None:
            typed = [shlex.split(line)[1:] for line in text.replace("\\\n", " ").splitlines()]
            check("".join(invoke(words).output for words in typed), printed)
            count += 1
    assert count == 3

"""Pages whose blocks need no job: each of them is typed here, in this process, and prints what the page says."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import public
from pipeline.testing import public as testing
from tests.support.guide import check, steps
from tests.support.invoked import invoke
from tests.support.modules import ROOT

_IMPORTS = "from datetime import UTC, datetime, timedelta\n\nimport delayline.testing"
"""What an earlier block of a page has imported."""


@pytest.mark.parametrize(("page", "of"), [("windows", "open_zone"), ("fairness", "")])
def test_what_a_page_types_prints_what_it_says(
    page: str, of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who copies a block gets what stands below it. From the wheel they are typed by a test of minutes."""
    monkeypatch.chdir(tmp_path)
    # Installed, everything lies below one name.
    monkeypatch.setitem(sys.modules, "delayline", public)
    monkeypatch.setitem(sys.modules, "delayline.testing", testing)
    monkeypatch.setattr(public, "testing", testing, raising=False)
    names, count = dict[str, Any](), 0
    exec(_IMPORTS, names)  # noqa: S102 - our own
    for kind, text, printed in steps((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        if kind == "python" and of not in text:
            continue
        if kind == "shell":
            typed = [shlex.split(line)[1:] for line in text.replace("\\\n", " ").splitlines()]
            said = "".join(invoke(words).output for words in typed)
        else:
            out = StringIO()
            with redirect_stdout(out):
                exec(text, names)  # noqa: S102 - our own pages
            said = out.getvalue()
        check(said, printed or "")
        count += 1
    assert count >= 2

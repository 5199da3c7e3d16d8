"""`docs/api.md` is what the docstrings say."""

from __future__ import annotations

import pytest

from pipeline.client import everything, public
from tests.support.api_page import PAGE, page


def test_the_page_of_names_is_written_from_the_docstrings() -> None:
    """Whoever changes a docstring runs `make docs`, so no reader meets yesterday's options."""
    written = page()
    assert PAGE.read_text(encoding="utf-8") == written, "run: make docs (or python -m tests.support.api_page)"
    assert [name for name in public.__all__ if f"`delayline.{name}`" not in written] == ["SETTLED_BY"]


def test_another_docstring_makes_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page follows the code, and not a list of its own."""
    monkeypatch.setattr(everything.Client.subscribe, "__doc__", "Something else.")
    assert page() != PAGE.read_text(encoding="utf-8")

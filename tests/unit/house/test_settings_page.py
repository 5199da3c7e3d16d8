"""`docs/settings.md` is what the code says."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="profiles are read by the stages, which need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from pipeline.config.settings import Settings
from tests.support.settings_page import PAGE, page, settings


def test_the_page_of_settings_is_written_from_the_code() -> None:
    """Whoever changes a setting runs `make docs`, so no reader meets yesterday's names."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_another_default_makes_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page follows the classes, and not a list of its own."""
    monkeypatch.setattr(Settings.__dataclass_fields__["publish_ms"], "default", 77)
    assert page() != PAGE.read_text(encoding="utf-8")


def test_every_setting_has_a_meaning() -> None:
    """A name without a sentence is no reference."""
    found = list(settings())
    assert len(found) > 20
    assert [each.key for each in found if len(each.meaning) < 10] == []

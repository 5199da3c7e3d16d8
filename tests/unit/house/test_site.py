"""What the pages of `make site` are linked by."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="the pages need requirements/site.lock")

from tests.support.modules import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def conf() -> Iterator[dict[str, Any]]:
    """The configuration of Sphinx. It names what the package gives, which is not installed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "delayline", ModuleType("delayline"))
        yield runpy.run_path(str(DOCS / "site" / "conf.py"))


@pytest.mark.parametrize(
    ("name", "folder", "page"),
    [
        ("kafka.md", "", "/kafka"),
        ("docs/kafka.md", "", "/kafka"),
        ("kafka.md", "decisions", "/kafka"),
        ("decisions/README.md", "", "/decisions/README"),
        ("README.md", "decisions", "/decisions/README"),
        ("README.md", "", None),
        ("tests/README.md", "", None),
    ],
)
def test_a_name_of_a_page_is_a_link_to_it(conf: dict[str, Any], name: str, folder: str, page: str | None) -> None:
    """As texts name pages: from the folder of pages, from the root, or from where they stand."""
    assert conf["page_of"](name, DOCS, Path(folder)) == page


@pytest.mark.parametrize("name", ["nothing.md", "docs/nothing.md", "docs/README.md", "decisions/nothing.md"])
def test_a_name_that_no_file_has_is_refused(conf: dict[str, Any], name: str) -> None:
    """The build fails then."""
    with pytest.raises(FileNotFoundError):
        conf["page_of"](name, DOCS, Path())

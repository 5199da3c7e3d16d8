"""What a page says to type, so that a test types the same."""

from __future__ import annotations

import re

from tests.support.modules import ROOT

_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")


def text_of(page: str) -> str:
    """A page of `docs`."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def span_of(page: str, begin: str) -> str:
    """The one piece of code in the text of a page that begins so."""
    found: str
    (found,) = {each for each in _SPAN.findall(_FENCE.sub("", text_of(page))) if each.startswith(begin)}
    return found


def block_of(page: str, part: str) -> list[str]:
    """The lines of the one block of code of a page that has a text."""
    found: str
    (found,) = (each for each in _FENCE.findall(text_of(page)) if part in each)
    return found.splitlines()

"""Commits of a Delta table, read from its log."""

from __future__ import annotations

import json
from typing import cast

from pipeline.deltalog import actions
from pipeline.files import Files


class Text:
    """A log of one version."""

    def __init__(self, text: str) -> None:
        """Keep it."""
        self._text = text

    def text(self, _path: str) -> str:
        """As `Files.text`."""
        return self._text


def test_a_text_in_the_statistics_does_not_end_a_line() -> None:
    """Other writers leave these characters as they are, and Python takes them for ends of lines."""
    told = [{"add": {"path": "p", "stats": "a\u2028b\u2029c\x85d"}}, {"commitInfo": {}}]
    text = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in told)
    assert actions(cast("Files", Text(text)), "table", 0) == told

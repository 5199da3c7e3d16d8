"""Texts of strangers in lines of a terminal and of a log."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.printed import Printable, print_logs, printable


@given(st.text())
def test_a_text_is_one_line_of_characters_that_can_be_shown(text: str) -> None:
    """An escape sequence in a payload retitled the window, cleared it, or forged a line."""
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


@given(st.dictionaries(st.text(), st.text(), max_size=2))
def test_a_line_of_json_keeps_its_content(content: dict[str, str]) -> None:
    """Terminals take U+009B for the begin of a sequence, and JSON does not escape it."""
    line = printable(json.dumps(content, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line) == json.loads(json.dumps(content))


def test_a_log_line_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a name in a message, nor by the text of an error in its stack trace."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    monkeypatch.setattr(logging, "lastResort", handler)
    print_logs()
    assert isinstance(handler.formatter, Printable)
    logger = logging.Logger("a")  # noqa: LOG001 - one that nobody else has
    logger.addHandler(handler)
    try:
        raise ValueError("a\nroot: all is well\x1b[2J")  # noqa: TRY301 - the text is what is tested
    except ValueError:
        logger.exception("topic %s", "t\nroot: all is well\x1b]0;x\x07")
    first, *trace = out.getvalue().splitlines()
    assert first == "topic t\\nroot: all is well\\x1b]0;x\\x07"
    assert all(line.startswith("  ") and line.isprintable() for line in trace)

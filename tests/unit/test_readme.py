"""The README's Python blocks run, and say what they print."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def outcome(text: str) -> doctest.TestResults:
    """Run the Python blocks of a text, one after the other, in one namespace."""
    examples = "\n".join(BLOCK.findall(text))
    test = doctest.DocTestParser().get_doctest(examples, {}, "README", None, 0)
    return doctest.DocTestRunner().run(test)


def test_the_readme_examples_print_what_they_show() -> None:
    """A reader who types the examples sees the same answers."""
    result = outcome(README.read_text(encoding="utf-8"))
    assert result.attempted > 0
    assert result.failed == 0


def test_a_wrong_answer_in_an_example_is_seen() -> None:
    """The runner fails an example whose answer is not what is shown."""
    assert outcome("```python\n>>> 1 + 1\n3\n```\n").failed == 1

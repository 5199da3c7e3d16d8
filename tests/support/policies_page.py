"""Writes the tables of `docs/policies.md` from the code: names, options, ranges, defaults and meanings of policies.

`make docs` runs it; a unit test fails while the tables are not what it writes. An option that `docs/words.md` lacks
gets its row there, with the help of the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.policytable import PolicyTable, Row
from pipeline.subscriptions.topicpolicies import TopicPolicies
from tests.support.modules import ROOT
from tests.support.settings_page import meanings

PAGE, WORDS = ROOT / "docs" / "policies.md", ROOT / "docs" / "words.md"
TABLES: Mapping[str, type[PolicyTable]] = {"topic": TopicPolicies, "subscription": Policies}
_HEAD = "| Policy | Option | Allowed | Default | Means |\n|---|---|---|---|---|"
_OF_THE_CODE = re.compile(r" \(`(?:pipeline|state)\.[^)]*\)")
_OPTIONS = re.compile(r"(## Options\n\n.*\n.*\n)((?:\|.*\n)+)")
_NAME = re.compile(r"\| `([^`]+)`")


def page(text: str) -> str:
    """The page with its tables."""
    for name, table in TABLES.items():
        begin, end = f"<!-- policies of a {name}: begin, by `make docs` -->", f"<!-- policies of a {name}: end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{_table(table)}\n\n{end}{rest.partition(end)[2]}"
    return text


def words(text: str) -> str:
    """The page of words, with each option."""
    found = _OPTIONS.search(text)
    assert found is not None, WORDS
    rows = {name: row for row in found[2].splitlines() for name in _NAME.findall(row)}
    for table in TABLES.values():
        for row in table.rows.values():
            rows.setdefault(*_word(row))
    return text.replace(found[2], "".join(f"{rows[name]}\n" for name in sorted(rows) if name))


def _table(table: type[PolicyTable]) -> str:
    about = {name: _OF_THE_CODE.sub("", text) for name, text in meanings(table).items()}
    about = {name: text.replace(". without", ". Without") for name, text in about.items()}
    rows = (
        f"| `{name}` | {_option(row)} | {_allowed(row)} | {_default(row.default)} | {about[name]} |"
        for name, row in table.rows.items()
    )
    return "\n".join([_HEAD, *rows])


def _option(row: Row) -> str:
    return "" if row.option is None else f"`{row.flag}`"


def _allowed(row: Row) -> str:
    if row.kind is bool:
        return "`true`, `false`"
    if row.kind is int:
        off = "" if row.within.off is None else f"{row.within.off}, "
        return f"{off}{row.within.low:_} to {row.within.high:_}"
    texts = () if row.text is None else row.text.choices
    return ", ".join(f"`{each}`" for each in texts) or ("text" if row.text is None else row.text.allowed)


def _default(value: bool | int | str | None) -> str:  # noqa: FBT001 - a value, not a switch
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else f'{value:_}'}`"


def _word(row: Row) -> tuple[str, str]:
    """An option, and its row; the option is empty where there is none."""
    name = "" if row.option is None else row.flag.partition("/")[0]
    kind = "flag" if row.kind is bool else "text" if row.kind is str else "duration" if row.is_duration else "number"
    text = "" if row.option is None else row.option.help.rstrip(".")
    return name, f"| `{name}` | {kind} | {text[:1].lower()}{text[1:]} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    WORDS.write_text(words(WORDS.read_text(encoding="utf-8")), encoding="utf-8")

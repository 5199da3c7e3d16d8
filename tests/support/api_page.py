"""Writes `docs/api.md` from the docstrings of what `import delayline` gives.

`make docs` runs it; a test fails while the page is not what it writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from pipeline.client import everything, public
from pipeline.testing import public as testing
from tests.support.modules import ROOT

PAGE = ROOT / "docs" / "api.md"
_HEAD = """# Names of the package

`make docs` writes this page from the docstrings; do not edit it. `docs/client.md` is the page to read first: it says
how the names are used. `help(delayline.Client)` prints the same in Python.
"""
_CLIENTS = ("Client", "Producer", "Consumer", "Reader", "Message", "MessageId")
_SECTIONS: dict[str, Callable[[Any], bool]] = {
    "Clients, producers, consumers, readers": lambda each: each.__name__ in _CLIENTS,
    "Functions": inspect.isfunction,
    "What they give and take": lambda each: not issubclass(each, Enum | BaseException),
    "Choices": lambda each: issubclass(each, Enum),
    "Errors": lambda each: issubclass(each, BaseException),
}
_PART = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ITEM = re.compile(r"^( *)(\*{0,2}[\w, .]+): (.*)$")
_OBJECT, _CHOICE = re.compile(r"<(?:\w+\.)*(\w+) object at \w+>"), re.compile(r"<([\w.]+): [^>]*>")
"""How Python shows defaults that have no text of their own: an object, and a member of an enumeration."""
_MODULE = re.compile(r"\b(?:pipeline|collections|typing)(?:\.[a-z_]\w*)*\.(?=[A-Z])")
_WIDTH = 110


def page() -> str:
    """The page."""
    named = [(name, getattr(everything, name)) for name in public.__all__]
    waiting = [(name, each) for name, each in named if inspect.isclass(each) or inspect.isfunction(each)]
    lines = [_HEAD]
    for title, belongs in _SECTIONS.items():
        there = [pair for pair in waiting if belongs(pair[1])]
        waiting = [pair for pair in waiting if pair not in there]
        lines += [f"## {title}\n", *(line for name, each in there for line in _described(f"delayline.{name}", each))]
    lines.append("## `delayline.testing`\n")
    lines += [
        line for name in testing.__all__ for line in _described(f"delayline.testing.{name}", getattr(testing, name))
    ]
    lines.append("## Modules\n")
    modules = [(name, each) for name, each in named if inspect.ismodule(each)]
    lines += [f"- `delayline.{name}`: {_text(each).splitlines()[0]}" for name, each in modules]
    return "\n".join(lines) + "\n"


def _described(name: str, each: Any) -> Iterator[str]:  # noqa: ANN401 - a class or a function
    yield f"### `{name}`\n"
    if inspect.isfunction(each):
        yield _signature(name.rpartition(".")[2], each)
    yield _in_markdown(_text(each))
    if not inspect.isclass(each):
        return
    if issubclass(each, Enum):
        yield f"One of {', '.join(f'`{member.name}`' for member in each)}.\n"
        return
    if inspect.isfunction(each.__init__) and not issubclass(each, BaseException):
        yield _signature(name.rpartition(".")[2], each.__init__).replace(") -> None\n", ")\n")
        yield _in_markdown(inspect.cleandoc(each.__init__.__doc__ or "")) if "__init__" in vars(each) else ""
    for below, member in _methods(each):
        yield f"#### `{name.rpartition('.')[2]}.{below}`\n"
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield _signature(below, function)
        yield _in_markdown(_text(member))


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class of this project, with those that it inherits from such classes."""
    names = {name for base in kind.__mro__ if base.__module__.partition(".")[0] == "pipeline" for name in vars(base)}
    for name in sorted(names):
        member = inspect.getattr_static(kind, name)
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and (isinstance(member, property) or inspect.isfunction(function)):
            yield name, member


def _text(each: Any) -> str:  # noqa: ANN401 - whatever has a docstring
    return inspect.getdoc(each) or ""


def _signature(name: str, function: Any) -> str:  # noqa: ANN401 - as above
    signature = inspect.signature(function)
    parameters = [_parameter(str(each)) for each in _given(signature)]
    gives = signature.return_annotation
    end = ")" if gives is signature.empty else f") -> {_parameter(getattr(gives, '__name__', str(gives)))}"
    line = f"{name}({', '.join(parameters)}{end}"
    if len(line) > _WIDTH:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in parameters), end])
    return f"```text\n{line}\n```\n"


def _parameter(text: str) -> str:
    """One as it would be written; what may be left out without a default that Python knows has none."""
    text = re.sub(r"<function .* at \w+>", "...", text)
    return _MODULE.sub("", _OBJECT.sub(r"\1()", _CHOICE.sub(r"\1", text))).replace("'", "").replace(" = ...", "")


def _given(signature: inspect.Signature) -> Iterator[Any]:
    """The parameters as somebody types them, with the star before those that are named."""
    named = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not named:
            named = True
            yield "*"
        if each.name != "self":
            yield each


def _in_markdown(text: str) -> str:
    """A docstring, its parts as lists."""
    lines, within = list[str](), False
    for line in text.splitlines():
        part, item = _PART.match(line), _ITEM.match(line)
        if part is not None:
            within = True
            lines += [f"*{part[1]}*\n"]
        elif within and item is not None and len(item[1]) == 4:
            lines.append(f"- `{item[2]}`: {item[3]}")
        elif within and line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            within = within and (not line or line.startswith(" "))
            lines.append(line.strip() if within else line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

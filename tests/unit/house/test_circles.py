"""No two modules need each other, whatever lies between them, and wherever the imports stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.support.modules import Module, imports, modules


def needed(every: Iterable[Module]) -> dict[str, set[str]]:
    """The modules that each module imports."""
    names = {module.name.removesuffix(".__init__"): module for module in every}

    def module_of(name: str) -> str | None:
        return next((each for each in (name, name.rpartition(".")[0]) if each in names), None)

    return {
        name: {found for each in imports(module) if (found := module_of(each))} - {name}
        for name, module in names.items()
    }


def circle(needs: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the next one, the last one the first; none where there is no such circle."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_import_each_other() -> None:
    """Also for types alone: whoever reads one of them would have to read all of them."""
    assert circle(needed(modules())) == []


def test_a_planted_circle_is_reported() -> None:
    """Of a room and of what is imported within a function."""
    planted = [
        Module("a.x", "from a import y"),
        Module("a.y", "def f():\n    from b.z import g"),
        Module("b.z", "import a.x"),
    ]
    assert set(circle(needed(planted))) == {"a.x", "a.y", "b.z"}

"""The source files of the project, and what each imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("state", "schemas", "pipeline", "jobs", "benchmarks", "tests")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text and its tree."""

    name: str
    source: str

    @property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.source)

    @property
    def layer(self) -> str:
        """The top folder."""
        return self.name.partition(".")[0]


def within(name: str, *prefixes: str) -> bool:
    """Whether a dotted name is one of the prefixes or lies below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


@cache
def imports(module: Module) -> tuple[str, ...]:
    """Every dotted name that a module imports, wherever the import stands: top, function, type checking, dynamic."""
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                package = module.name.split(".")[:-level] if level else []
                yield from (".".join([*package, *([base] if base else []), alias.name]) for alias in names)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in {"__import__", "import_module"}:
                target = node.args[0] if node.args else None
                yield str(target.value) if isinstance(target, ast.Constant) else "<computed>"


@cache
def modules() -> tuple[Module, ...]:
    """All modules of the project."""
    paths = sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    return tuple(
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text(encoding="utf-8"))
        for path in paths
    )


def loaded_after(statement: str, names: set[str]) -> set[str]:
    """Which of the named modules a fresh interpreter has loaded after a statement."""
    probe = f"{statement}\nimport sys\nprint(*(set(sys.modules) & {names!r}))"
    command = [sys.executable, "-W", "error", "-c", probe]
    return set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())  # noqa: S603

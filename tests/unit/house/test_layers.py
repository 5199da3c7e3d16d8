"""The layers of the project, checked by walking the syntax trees of all modules.

Direction: jobs -> pipeline -> {state, schemas}. `state` is pure: no Spark, no pandas, no I/O, no wall clock.
`tests/unit/house/test_rooms.py` looks into `pipeline`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

import pytest

from tests.support.modules import Module, imports, loaded_after, modules, within

MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 400

# Standard modules that reach a clock, a file, a process, the network, the log or chance.
IMPURE = frozenset(
    {"asyncio", "glob", "http", "logging", "multiprocessing", "os", "pathlib", "random", "sched", "secrets", "shutil"}
    | {"socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid"}
)
# Standard modules that a table contract has a use for.
TYPING = frozenset({"__future__", "collections", "dataclasses", "enum", "functools", "json", "types", "typing"})
# pyarrow is there for its codecs; these parts read and write files or reach the network.
ARROW_FILES = ("csv", "dataset", "feather", "flight", "fs", "json", "orc", "parquet")
IMPURE_CALLS = frozenset(
    {"fromfile", "genfromtxt", "input", "loadtxt", "memmap", "memory_map", "now", "open", "print", "savetxt", "savez"}
    | {"sleep", "today", "tofile", "utcnow"}
)


def state_may(name: str) -> bool:
    """`state`: the pure standard library, numpy, pyroaring, the codecs of pyarrow, notations of recurrence, itself."""
    if within(name, "pyarrow"):
        return not within(name, *(f"pyarrow.{part}" for part in ARROW_FILES))
    return within(name, "state", "numpy", "pyroaring", "cronsim", "dateutil.rrule") or within(
        name, *(sys.stdlib_module_names - IMPURE)
    )


def schemas_may(name: str) -> bool:
    """`schemas`: typing helpers, Spark's types, itself."""
    return within(name, "schemas", "pyspark.sql.types", *TYPING)


def pipeline_may(name: str) -> bool:
    """`pipeline`: anything below it or from outside, so no mains, tests or benchmarks."""
    return not within(name, "jobs", "tests", "benchmarks")


def jobs_may(name: str) -> bool:
    """`jobs`: anything but tests and benchmarks."""
    return not within(name, "tests", "benchmarks")


def benchmarks_may(name: str) -> bool:
    """`benchmarks`: anything but mains and tests."""
    return not within(name, "jobs", "tests")


RULES: dict[str, Callable[[str], bool]] = {
    "state": state_may,
    "schemas": schemas_may,
    "pipeline": pipeline_may,
    "jobs": jobs_may,
    "benchmarks": benchmarks_may,
}


def broken_imports(module: Module) -> list[str]:
    """The imports of a module that its layer may not have."""
    may = RULES.get(module.layer)
    return [f"{module.name} imports {name}" for name in imports(module) if may and not may(name)]


def impure_calls(module: Module) -> list[str]:
    """The calls of a module that would read a clock, a file or the terminal."""
    found = []
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in IMPURE_CALLS:
                found.append(f"{module.name}:{node.lineno} calls {name}")
            case ast.Call(func=ast.Attribute(attr="datetime64"), args=[ast.Constant(value="now" | "today"), *_]):
                found.append(f"{module.name}:{node.lineno} reads the clock through a string")
    return found


def oversized(module: Module) -> list[str]:
    """The functions of a module that are too long, and the module itself if it is."""
    found = []
    lines = len(module.source.splitlines())
    if lines > MAX_MODULE_LINES:
        found.append(f"{module.name} has {lines} lines, allowed {MAX_MODULE_LINES}")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                found.append(f"{module.name}.{node.name} has {lines} lines, allowed {MAX_FUNCTION_LINES}")
    return found


def test_the_walk_finds_the_index_and_this_test() -> None:
    """An empty walk would let every other test here pass."""
    assert {"state.__init__", "tests.unit.house.test_layers"} <= {module.name for module in modules()}


def test_no_module_breaks_its_layer() -> None:
    """Imports go down only: jobs, pipeline, then state and schemas, which do not know each other."""
    assert [line for module in modules() for line in broken_imports(module)] == []


def test_state_has_no_clock_and_no_io() -> None:
    """Time is an argument of the core, and its bytes come and go through the caller."""
    assert [line for module in modules() if module.layer == "state" for line in impure_calls(module)] == []


def test_no_function_and_no_module_is_too_long() -> None:
    """Long functions and files are where the models of this project went wrong."""
    assert [line for module in modules() for line in oversized(module)] == []


def test_importing_state_leaves_spark_and_pandas_unloaded() -> None:
    """A worker or a small tool that needs only the index pays only for the index."""
    assert loaded_after("import state", {"state", "pyspark", "pandas", "delta", "deltalake"}) == {"state"}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("state.index", "import pandas as pd"),
        ("state.index", "from schemas import tables"),
        ("state.index", "from ..pipeline import encode"),
        ("state.index", "def late():\n    import pyspark"),
        ("state.index", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("state.index", "import time"),
        ("state.index", "from time import monotonic"),
        ("state.index", "import pyarrow.parquet as pq"),
        ("state.index", "from pyarrow import fs"),
        ("state.index", "import statement"),
        ("state.index", "import importlib\nimportlib.import_module('pandas')"),
        ("state.index", "import importlib\nimportlib.import_module('pan' + 'das')"),
        ("schemas.tables", "import state"),
        ("schemas.tables", "from pyspark.sql import functions"),
        ("schemas.tables", "import os"),
        ("pipeline.ingest.stage", "from jobs.cli import main"),
        ("pipeline.ingest.stage", "import jobs"),
        ("benchmarks.index", "import jobs.deliver"),
        ("jobs.cli", "from tests.support import clock"),
    ],
)
def test_a_planted_import_is_reported(name: str, source: str) -> None:
    """The checker sees an import that breaks a layer, however it is written."""
    assert len(broken_imports(Module(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("state.index", "import heapq\nimport numpy as np\nfrom pyroaring import BitMap\nfrom state.errors import Bad"),
        (
            "state.index",
            "from . import errors\nfrom .errors import Bad\nimport pyarrow as pa\nfrom pyarrow import Codec",
        ),
        (
            "schemas.tables",
            "from typing import Final\nfrom pyspark.sql.types import StructType\nfrom schemas import rows",
        ),
        ("schemas.tables", "from pyspark.sql import types as t"),
        (
            "pipeline.ingest.stage",
            "import pyspark\nimport delta\nimport state\nimport schemas\nfrom pipeline import clock",
        ),
        ("jobs.cli", "import typer\nfrom pipeline import clock\nfrom jobs import profiles"),
        ("tests.smoke.test_cli", "from jobs.cli import main"),
    ],
)
def test_an_allowed_import_is_not_reported(name: str, source: str) -> None:
    """The checker leaves alone what the layers allow."""
    assert broken_imports(Module(name, source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(1)",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "np.datetime64('now')",
        "open('f')",
        "io.open('f')",
        "np.fromfile('f')",
        "print('x')",
    ],
)
def test_a_planted_clock_or_file_is_reported(source: str) -> None:
    """The checker sees a call that reaches outside."""
    assert len(impure_calls(Module("state.index", source))) == 1


def test_a_planted_long_function_and_module_are_reported() -> None:
    """The size check counts to the limit and no further."""
    function = "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)
    assert oversized(Module("state.index", function)) == []
    assert len(oversized(Module("state.index", function + "    x = 1\n"))) == 1
    assert oversized(Module("state.index", "x = 1\n" * MAX_MODULE_LINES)) == []
    assert len(oversized(Module("state.index", "x = 1\n" * (MAX_MODULE_LINES + 1)))) == 1


def test_the_probe_for_loaded_modules_sees_a_loaded_one() -> None:
    """The subprocess reports what the statement imported."""
    assert loaded_after("import decimal", {"decimal", "pandas"}) == {"decimal"}

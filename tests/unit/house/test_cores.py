"""What a stage decides stands in its core: plain functions over arrays, beside Spark, files, logs and clocks."""

from __future__ import annotations

import sys

import pytest

from tests.support.modules import Module, imports, modules, within
from tests.unit.house.test_rooms import comes_to_load

CORES = ("pipeline.dispatch.core", "pipeline.ingest.core", "pipeline.settle.core")
VALUES = (
    *(f"pipeline.subscriptions.{name}" for name in ("incarnations", "lines", "policies", "policytable")),
    *(f"pipeline.subscriptions.{name}" for name in ("rates", "records", "topicpolicies", "uniqueness", "windows")),
    *(f"pipeline.config.{name}" for name in ("errors", "settings", "zones")),
)
"""Plain records and rules that all rooms share."""
ARRAYS = ("numpy", "pyarrow", "pyroaring")
ALLOWED = (*ARRAYS, "state", "schemas", "pipeline.storage.arrays", "pipeline.storage.texts", *VALUES, *CORES)
OUTSIDE = {
    "datetime",
    "io",
    "logging",
    "os",
    "pathlib",
    "random",
    "shutil",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
"""What of Python's own library reaches a file, a clock, or another process."""


def strangers(module: Module) -> list[str]:
    """What a module imports that no core may."""
    own = sys.stdlib_module_names - OUTSIDE
    return [name for name in imports(module) if not within(name, *ALLOWED, *own)]


@pytest.mark.parametrize("core", CORES)
def test_a_core_imports_arrays_state_and_plain_records(core: str) -> None:
    """So it is called with what is there, by Spark, by this process, and by tests."""
    own = [module for module in modules() if within(module.name, core)]
    assert own
    assert {module.name: found for module in own if (found := strangers(module))} == {}
    assert [name for name in comes_to_load(core.removeprefix("pipeline.")) if not within(name, *ARRAYS, "tzdata")] == []


@pytest.mark.parametrize(
    "source", ["import time", "from pyspark.sql import functions", "from pipeline.delta.warehouse import Warehouse"]
)
def test_a_planted_import_is_reported(source: str) -> None:
    """A clock, Spark, and a table."""
    assert len(strangers(Module("pipeline.settle.core.fold", source))) == 1

"""Spark for modules that also work where it is not installed: it is loaded when something of it is first used.

What they name in annotations only is imported for the type checker, and errors are asked for by `raised`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from pipeline.config.lazymodule import LazyModule

__all__ = ["F", "deltaspark", "pyspark", "raised"]

_Name = Literal["AnalysisException", "PySparkException", "Py4JError", "Py4JJavaError"]
_ERRORS: dict[_Name, str] = {
    "AnalysisException": "pyspark.errors",
    "PySparkException": "pyspark.errors",
    "Py4JError": "py4j.protocol",
    "Py4JJavaError": "py4j.protocol",
}


if TYPE_CHECKING:
    import pyspark
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

    from pipeline.config import deltaspark
else:
    pyspark, F = LazyModule("pyspark"), LazyModule("pyspark.sql.functions")
    deltaspark = LazyModule(f"{__package__}.deltaspark")


def raised(*errors: _Name | type[Exception]) -> tuple[type[Any], ...]:
    """Errors for `except`. Those of Spark have their names; where Spark is not loaded nobody raises them."""
    named = [(sys.modules.get(_ERRORS[each]), each) for each in errors if isinstance(each, str)]
    others = (each for each in errors if not isinstance(each, str))
    return *(getattr(module, name) for module, name in named if module is not None), *others

"""The Python package of Delta for Spark. Whoever needs it imports it from here, so that `python -OO` has it, too.

Its decorator `since` reads docstrings, and that option leaves none.
"""

import sys
from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

import pyspark

_Function = TypeVar("_Function", bound=Callable[..., object])


def _since(_version: str | float) -> Callable[[_Function], _Function]:
    """Stands for the decorator where there are no docstrings."""
    return lambda function: function


with patch.object(pyspark, "since", _since if sys.flags.optimize > 1 else pyspark.since):
    import delta as package
    from delta import configure_spark_with_delta_pip, exceptions
    from delta.tables import DeltaTable

__all__ = ["DeltaTable", "configure_spark_with_delta_pip", "exceptions", "package"]

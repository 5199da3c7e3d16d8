"""A process without pandas, though it is installed: PyArrow imports it to ask of an array whether it is one of its own.

That takes a second of a processor and 40 MB. Commands that work beside a job have no use for it, and all that they do
works where pandas is not installed.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PANDAS = "pandas"


class _Without(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Refuse it; others are found elsewhere."""
        if name == _PANDAS:
            message = "this process does without pandas"
            raise ModuleNotFoundError(message, name=name)
        return None


def leave_out_pandas() -> None:
    """Let this process do without pandas from now on, unless it has it."""
    if _PANDAS not in sys.modules:
        sys.meta_path.insert(0, _Without())

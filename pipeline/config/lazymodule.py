"""A module that is loaded when something of it is first used.

A program that only sends does not wait for what commands, looks back or schedules. The type checker imports such a
module as any other one, and names that stand in annotations only are imported for the type checker alone.
"""

from importlib import import_module
from types import ModuleType


class LazyModule(ModuleType):
    """A module under its name, loaded when it is asked for anything."""

    def __getattr__(self, name: str) -> object:
        """What the module has under a name."""
        return getattr(import_module(self.__name__), name)

"""The examples in the docstrings of structures print what they show."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

pytest.importorskip("pyspark", reason="one of them is a module of a stage")


MODULES = ("state.units", "state.blocks", "state.cells", "state.chunk", "state.leases", "pipeline.sinks.lots")


@pytest.mark.parametrize("name", MODULES)
def test_an_example_prints_what_it_shows(name: str) -> None:
    """A reader who sees a structure for the first time looks there."""
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0

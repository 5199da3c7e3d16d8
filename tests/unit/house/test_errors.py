"""Errors go from process to process: a pool of processes pickles what a worker raises."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

pytest.importorskip("pyspark", reason="some modules with errors need requirements/all.lock")

from state import DelaylineError
from tests.support.modules import modules

ARGUMENTS = {
    int: 3,
    float: 2.5,
    str: "kafka",
    str | None: "kafka",
    int | None: 3,
    object: "kafka",
    tuple[int, int]: (3, 4),
    Sequence[str]: ("a", "b"),
    Path: Path("folder"),
    Exception: OSError(28, "no space"),
}
"""One for each type; `kafka` is a text that every argument takes."""


def errors() -> list[type[DelaylineError]]:
    """All classes of the project below the root, which is the first one."""
    for module in modules():
        if module.layer in {"state", "pipeline", "jobs"} and "(PipelineError)" in module.source:
            import_module(module.name)
    found: list[type[DelaylineError]] = [DelaylineError]
    for each in found:
        found += [one for one in each.__subclasses__() if one not in found]
    return [each for each in found if each.__module__.partition(".")[0] != "tests"]


def built(kind: type[DelaylineError]) -> DelaylineError:
    """One of a class, with arguments of the types that it asks for."""
    if not inspect.isfunction(kind.__init__):
        return kind("something is wrong")
    hints: dict[str, Any] = get_type_hints(kind.__init__)
    return kind(*(ARGUMENTS[hints[name]] for name in list(inspect.signature(kind).parameters)))


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_an_error_that_was_pickled_is_the_same(kind: type[DelaylineError]) -> None:
    """Type, text and fields; one that cannot be read again breaks the pool, and its worker's error is lost."""
    error = built(kind)
    error.add_note("said later")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), again.args) == (kind, str(error), error.args)
    assert {name: repr(value) for name, value in vars(again).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }

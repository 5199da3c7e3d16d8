"""`delayline clone`: what was done, and what to do next, as text or JSON."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from jobs.commands.jsonform import json_line, record
from pipeline.config.extras import need
from pipeline.config.settings import DAY_MS
from pipeline.config.spelling import command_line, iso_text
from pipeline.delta.warehouse import Warehouse
from pipeline.service.clone import Cloned
from pipeline.storage.files import Files


def opener(target: str, held: ExitStack) -> Callable[[str], Warehouse]:
    """What makes a warehouse of a copy. On this machine it has no session; in a store only Spark adds to its logs.

    Args:
        target: the copy.
        held: ends the session.

    Raises:
        ExtraMissing: the copy lies in a store, and Spark is not installed.
    """
    if Files().local(target) is not None:
        return Warehouse
    need("spark")
    from jobs.commands.spark import session  # noqa: PLC0415 - it loads Spark
    from pipeline.config.session import Machine  # noqa: PLC0415 - as above

    return lambda root: Warehouse(root, held.enter_context(session("delayline clone", Machine(), root)))


def report(done: Cloned) -> Iterator[str]:
    """Lines for people."""
    of = done.at if done.as_of is None else done.as_of
    yield f"{done.target} has what waited in {done.source} at {iso_text(of)}"
    yield f"  {done.linked:,} data files are shared by both, {done.copied:,} were copied"
    for each in done.sinks:
        yield f"  {each.topic}/{each.subscription} publishes nothing from there: its sink {each.sink} was taken off"
    yield f"It goes on with: {command_line(done.target, 'run')}"
    day = ["--from", iso_text(of), "--until", iso_text(of + DAY_MS), "--step", "1m"]
    yield f"Its next day is seen now with: {command_line(done.target, 'replay', *day)}"


def as_json(done: Cloned) -> str:
    """The same for scripts."""
    counts = {"linked": done.linked, "copied": done.copied, "versions": done.versions, "sinks": done.sinks}
    return json_line(record(warehouse=done.source, target=done.target, at=done.at, as_of=done.as_of, **counts))

"""`delayline ddl`: the SQL that registers the tables in a catalog, as text or JSON."""

from collections.abc import Iterator, Sequence

from jobs.commands.jsonform import json_line, record
from pipeline.client.tables.ddl import Registration


def report(found: Sequence[Registration]) -> Iterator[str]:
    """One statement a line, to be given to Spark as they are."""
    for each in found:
        yield f"{each.statement};"


def as_json(found: Sequence[Registration]) -> str:
    """The same for scripts."""
    return json_line([record(table=each.table, location=each.location, statement=each.statement) for each in found])

"""`delayline sources`: how far the sources of a warehouse are, as text or JSON."""

from collections.abc import Iterator

from jobs.commands.jsonform import json_line, record
from pipeline.config.printed import printable
from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.sourcenotes import SourceState, source_states
from schemas import INBOX


def noted(root: str) -> list[SourceState]:
    """Each source as it was noted last.

    Raises:
        NoWarehouse: the folder has no inbox.
    """
    open_table(root, INBOX)
    return list(source_states(Files(), root).all().values())


def report(root: str) -> Iterator[str]:
    """Lines for people: one a source."""
    found = noted(root)
    if not found:
        yield "No source has begun."
    for each in found:
        why = "" if each.unknown is None else f" ({printable(each.unknown)})"
        behind = f"unknown{why}" if each.behind is None else f"{each.behind:,}"
        how = "reading" if each.error is None else f"stands still: {printable(each.error)}"
        yield f"{each.name}  taken {each.taken:,}  behind {behind}  {how}"


def as_json(root: str) -> str:
    """The same for scripts."""
    return json_line([_record(each) for each in noted(root)])


def _record(each: SourceState) -> dict[str, object]:
    return record(
        source=each.name,
        address=each.address,
        taken=each.taken,
        place=each.place,
        rows_behind=each.behind,
        unknown=each.unknown,
        seen_ms=each.seen_ms,
        error=each.error,
    )

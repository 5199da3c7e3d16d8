"""`delayline topics`: the topics of a warehouse, as text or JSON."""

from collections.abc import Iterator, Sequence

from jobs.commands.columns import in_columns
from jobs.commands.jsonform import json_line, record
from pipeline.client.insight.topics import TopicState
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text

_HEADS = ("TOPIC", "PARTITIONS", "MESSAGES", "PENDING", "NEXT DUE", "SUBSCRIPTIONS")


def report(found: Sequence[TopicState]) -> Iterator[str]:
    """Lines for people: one a topic, in columns."""
    if not found:
        yield "No topic."
        return
    yield from in_columns(_HEADS, [_row(each) for each in found])


def as_json(found: Sequence[TopicState]) -> str:
    """The same for scripts."""
    return json_line([_record(each) for each in found])


def _record(each: TopicState) -> dict[str, object]:
    return record(
        topic=each.topic,
        partitions=each.partitions,
        subscription_names=each.subscriptions,
        messages=each.messages,
        pending=each.pending,
        next_due=each.next_due,
    )


def _row(each: TopicState) -> list[str]:
    partitions = f"{each.partitions:,}" if each.partitions else "-"
    due = "-" if each.next_due is None else iso_text(each.next_due)
    names = ", ".join(map(printable, each.subscriptions)) or "(none)"
    return [printable(each.topic), partitions, f"{each.messages:,}", f"{each.pending:,}", due, names]

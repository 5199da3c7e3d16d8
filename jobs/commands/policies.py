"""Policies of topics and subscriptions on the command line."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jobs.commands.durations import BadText, duration_ms
from pipeline.config.spelling import spell
from pipeline.subscriptions.guards import tables_of, text_of
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.policytable import PolicyTable, Row
from pipeline.subscriptions.topicpolicies import TopicPolicies

if TYPE_CHECKING:
    from pipeline.client.subscribing.policysetting import Held

BACKOFFS = "MIN:MULTIPLIER:MAX, two durations and a whole number between them: 1m:2:10m"
_BACKOFF = re.compile(r"([^:]+):([0-9]{1,4}):([^:]+)")
_LAST = ("ttl_ms", "guard", "sink", "ack")
"""Policies of which `policy show` speaks last, each with those that need it."""


def backoff(text: str) -> dict[str, int]:
    """The policies that say how long a message that failed waits, from `1m:2:10m`.

    Raises:
        BadText: another form.
    """
    match = _BACKOFF.fullmatch(text.strip())
    if match is None:
        raise BadText(text, BACKOFFS)
    least, most = duration_ms(match[1]), duration_ms(match[3])
    return {"retry_min_ms": least, "retry_multiplier": int(match[2]), "retry_max_ms": most}


def stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """The policies that a command names, as its options have them; None, or an empty list, is what it does not."""
    named = {name: value for name, value in values.items() if value is not None and value != []}
    if "guard_tables" in named:
        named["guard_tables"] = text_of(paths(named["guard_tables"]))
    named |= named.pop("retry_min_ms", {})
    return named


def flags(rows: Iterable[Row]) -> str:
    """The options of policies, for people."""
    *others, last = (row.flag for row in rows if row.option is not None)
    return f"{', '.join(others)} and {last}"


def named(texts: Iterable[str], rows: Collection[Row]) -> list[str]:
    """The names of policies, from them or from their options: `ttl_ms`, `ttl` and `--ttl` are one.

    `backoff` is the three policies that it states. What is no name of any stays as it is.
    """
    known = {_word(row.flag): [row.name] for row in rows} | {row.name: [row.name] for row in rows}
    known["backoff"] = [row.name for row in rows if row.name.startswith("retry_")]
    return [name for text in texts for name in known.get(_word(text)) or [text]]


def _word(text: str) -> str:
    return text.partition("/")[0].removeprefix("--").replace("-", "_")


def paths(texts: Iterable[str]) -> dict[str, str]:
    """The tables of a guard, from `NAME=PATH`; a path of this machine may begin where the command does.

    Raises:
        BadParameter: another form.
    """
    found = {}
    for each in texts:
        name, equals, path = each.partition("=")
        if not equals or not path:
            raise typer.BadParameter(f"--guard-table {each}: say NAME=PATH")
        found[name] = path if ":" in path else str(Path(path).absolute())
    return found


def past(held: "Sequence[Held]") -> Iterator[str]:
    """What policies were, a line for each change."""
    for each in held:
        texts = ", ".join(f"{name} = {text}" for name, text in each.policies.items())
        yield f"{each.since}  {texts or '(defaults)'}"


def topic_lines(policies: TopicPolicies, batch: int | None) -> Iterator[str]:
    """For people: the policies of a topic, and since when ingest follows them (`batch` is one that it made so)."""
    if policies == TopicPolicies():
        yield "no policies: each message is due when its producer asks for it"
    yield from _shown(policies)
    # Dispatch follows the time to live.
    if policies != TopicPolicies(ttl_ms=policies.ttl_ms):
        yield (
            "followed from the next batch of ingest on" if batch is None else f"followed by ingest, as of batch {batch}"
        )


def lines(topic: str, subscription: str, policies: Policies) -> Iterator[str]:
    """For people: all policies, as they are followed."""
    given = policies.max_redeliveries is not None
    letters = policies.dead_letters(topic, subscription) if given else None
    return _shown(policies, dead_letter_topic=letters, guard_tables=tables_of(policies.guard_tables))


def _shown(policies: PolicyTable, **instead: Any) -> Iterator[str]:  # noqa: ANN401 - values of policies
    """What rows say of values, or of what stands in their place."""
    values = {name: getattr(policies, name) for name in policies.rows} | instead
    spelled = {name: _spelled(row, values[name]) for name, row in policies.rows.items()}
    for row in sorted(policies.rows.values(), key=_turn):
        value, shown = values[row.name], row.shown
        if row.needs is not None and not values[row.needs]:
            continue
        if isinstance(value, Mapping):
            yield from (shown.line.format(*each) for each in value.items())
        elif line := shown.of.get(value, "" if value is None else shown.line):
            yield line.format(spelled[row.name], **spelled)


def _spelled(row: Row, value: Any) -> Any:  # noqa: ANN401 - as above
    return spell(value) if row.is_duration and value is not None else value


def _turn(row: Row) -> int:
    head = row.needs or row.name
    return _LAST.index(head) if head in _LAST else -1

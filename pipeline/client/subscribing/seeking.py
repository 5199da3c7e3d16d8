"""Seeking: a subscription begins anew at a position of its topic's log. What was open for it is dropped."""

from __future__ import annotations

from dataclasses import replace

from deltalake import DeltaTable

from pipeline.client.exceptions import InvalidMessage
from pipeline.client.message import MessageId
from pipeline.client.subscribing.lines import replace_lines, with_history
from pipeline.client.subscribing.lives import lives
from pipeline.client.subscribing.subscriptions import Subscription, existing, line_of, row_of
from pipeline.client.tables.topiclog import Place, TopicLog
from pipeline.subscriptions.incarnations import Sought
from state.buckets import MAX_TIME

_BEGINNING: Place = (0, 0)
Where = MessageId | int
"""A position (`MessageId.earliest` and `MessageId.latest`, too), or a publish time in ms since the epoch."""


def place_of(log: TopicLog, where: Where, *, inclusive: bool = True) -> Place:
    """The first position that comes: that of a message, or the one behind it. Behind the end of the log is its end.

    Raises:
        InvalidMessage: ingest has refused the message.
        Timeout: ingest has not taken the message yet.
    """
    if isinstance(where, int):
        return log.first_since(where)
    if where == MessageId.earliest:
        return _BEGINNING
    if where == MessageId.latest:
        return log.end()
    ledger, entry = log.position_of(where)
    return min(max(_BEGINNING, (ledger, entry + (not inclusive))), log.end())


def checked_where(where: object) -> Where:
    """Where somebody seeks.

    Raises:
        InvalidMessage: it is neither an id nor a time.
    """
    if isinstance(where, MessageId) or (
        isinstance(where, int) and not isinstance(where, bool) and 0 <= where <= MAX_TIME
    ):
        return where
    raise InvalidMessage("messageid", where, f"the id of a message, or a time in ms since the epoch in 0..{MAX_TIME}")


def begin_anew(root: str, topic: str, name: str, where: Where, *, inclusive: bool = True) -> int:
    """As `seek`, at a place that is looked up in the log; `inclusive`: with the message whose id it is.

    Raises:
        InvalidMessage, Timeout: as for `place_of`.
    """
    return seek(root, topic, name, place_of(TopicLog(root, topic), where, inclusive=inclusive))


def seek(root: str, topic: str, name: str, position: Place) -> int:
    """Let a subscription begin anew at a position, by one commit of the registry.

    Ingest begins the life with its next batch; from then on nothing of the life before is handed over.

    Returns:
        The number of the life that begins.

    Raises:
        NoWarehouse: the folder lacks a table.
        SubscriptionNotFound: there is no such subscription.
        StillConflicting: others changed this line every time; nothing was written.
    """
    mine, wrote = (topic, name), list[Sought]()

    def decide(registry: DeltaTable) -> list[dict[str, object]]:
        found = existing(line_of(registry, mine), mine)
        wrote.append(Sought(_life(root, registry, found), *position))
        return with_history(registry, mine, row_of(replace(found, start=str(wrote[-1])), active=True))

    replace_lines(root, mine, decide)
    return wrote[-1].life


def _life(root: str, registry: DeltaTable, line: Subscription) -> int:
    """A number above those of all lives that the line has had: each began with a version of the registry of its own."""
    known = lives(root).get(line.named)
    return max(registry.version(), 0 if known is None else known.number) + 1

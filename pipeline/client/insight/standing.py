"""How subscriptions that acknowledge stand: what is open, and which consumers share the work, by `cursors`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.client.subscribing.registryview import RegistryView, registry_view
from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.delta.logs.entries import last_note
from pipeline.storage.files import Files
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from schemas import CURSOR_LEASES, CURSORS, MESSAGES
from state import unpack_leases

Position = tuple[int, int]
_AT_ONCE = 500
"""So many positions are named in a query."""


@dataclass(frozen=True)
class Leased:
    """A consumer and its share.

    Attributes:
        consumer: its name.
        session: the number that it drew at its start.
        priority: of a failover consumer; 0 is the best.
        lease_ms: so long after its last sign of life the others take its share.
        slots: what it has, ascending.
    """

    consumer: str
    session: int
    priority: int
    lease_ms: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Standing:
    """A subscription, and how it stands.

    Attributes:
        line: of the registry.
        outstanding: messages that were released and are not settled; None: settle does not know the subscription, or
            it does not acknowledge.
        waiting: messages that failed and come again later; None: as above.
        oldest: the first position that is open.
        oldest_due: when the message there was due, ms UTC; None: it is not in `messages`.
        slots: into how many the work is parted; 0: nobody has said yet.
        consumers: those that live, by name.
    """

    line: Subscription
    outstanding: int | None = None
    waiting: int | None = None
    oldest: Position | None = None
    oldest_due: int | None = None
    slots: int = 0
    consumers: tuple[Leased, ...] = ()


def standings(
    root: str, topic: str | None = None, subscription: str | None = None, *, known: RegistryView | None = None
) -> list[Standing]:
    """All subscriptions, or those of a topic with its partitions, or of a name.

    Args:
        root: the warehouse.
        topic: only of this topic, with its partitions.
        subscription: only those of this name.
        known: the registry as it was read before; None: it is read.

    Raises:
        NoWarehouse: the folder lacks a table.
        CorruptBytes: a row of `cursors` cannot be read.
    """
    cursors = by_name(query(NEWEST.format(rows="t"), t=open_table(root, CURSORS)))
    lines = (known or registry_view(root)).of(topic, subscription)
    open_ = {each.named: cursors.get(each.named) for each in lines if each.policies.ack}
    oldest = {name: first for name, rows in open_.items() if rows and (first := rows.outstanding().oldest)}
    due = _due(root, oldest)
    return [_standing(each, open_.get(each.named), oldest, due) for each in lines]


def settled_at(root: str) -> int | None:
    """The instant of the last batch of settle, ms UTC; None: there was none.

    Raises:
        NoWarehouse: the folder lacks the table.
    """
    last = last_note(Files(), path_of(root, CURSORS), SETTLE, open_table(root, CURSORS).version())
    return None if last is None else int(last.note["now"])


def _standing(
    line: Subscription, rows: CursorRows | None, oldest: Mapping[Name, Position], due: Mapping[Position, int]
) -> Standing:
    if rows is None:
        return Standing(line)
    counts, first = rows.outstanding().counts, oldest.get(line.named)
    slots, consumers = _leased(rows)
    when = None if first is None else due.get(first)
    return Standing(line, counts.outstanding, counts.waiting, first, when, slots, consumers)


def _leased(rows: CursorRows) -> tuple[int, tuple[Leased, ...]]:
    if CURSOR_LEASES not in rows.blocks:
        return 0, ()
    replay = unpack_leases(rows.blocks[CURSOR_LEASES])
    found = (
        Leased(peer.consumer, session, peer.priority, peer.lease_ms, tuple(replay.owned(session)))
        for session, peer in replay.peers.items()
    )
    return len(replay.slots), tuple(sorted(found, key=lambda each: (each.consumer, each.session)))


def _due(root: str, oldest: Mapping[Name, Position]) -> dict[Position, int]:
    """When messages were due, ms UTC; a ledger is of one topic."""
    messages, found = open_table(root, MESSAGES), dict[Position, int]()
    for some in _portions(sorted(set(oldest.values()))):
        places = " OR ".join(f"(ledger_id = {ledger} AND entry_id = {entry})" for ledger, entry in some)
        columns = "ledger_id, entry_id, arrow_cast(due_time, 'Int64') / 1000 AS due"
        rows = query(f"SELECT {columns} FROM t WHERE {places}", t=messages)  # noqa: S608 - numbers
        found |= {(row["ledger_id"], row["entry_id"]): row["due"] for row in rows}
    return found


def _portions(positions: list[Position]) -> Iterable[list[Position]]:
    return (positions[start : start + _AT_ONCE] for start in range(0, len(positions), _AT_ONCE))

"""Lives of subscriptions: which of them ingest has noticed (marker rows of `segments`), and what a listener gets."""

from collections.abc import Iterable

from deltalake import DeltaTable

from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.incarnations import CHANGES, Incarnation, Name, Sought, alive, lives_by
from schemas import SEGMENTS


def lives(root: str) -> dict[Name, Incarnation]:
    """The last life of each subscription that ingest has noticed, by topic and name.

    Reads the marker rows of `segments` that say who joined and who left; files without any are passed over by their
    statistics.
    """
    return lives_in(open_table(root, SEGMENTS))


def lives_in(segments: DeltaTable, last: int | None = None) -> dict[Name, Incarnation]:
    """The same of `segments` at a version, up to a marker."""
    return lives_by(query(CHANGES.format(rows="segments"), segments=segments), last)


def lives_of(root: str, lines: Iterable[Subscription]) -> dict[Name, Incarnation | None]:
    """The life of each listener, noticed or about to begin; None: it gets none of the ledgers there are."""
    known = alive(lives(root))
    return {each.named: _life(each, known.get(each.named)) for each in lines}


def _life(line: Subscription, known: Incarnation | None) -> Incarnation | None:
    """The life of a listener that is known; else, or when a seek asks for another one, the one that ingest begins."""
    sought = Sought.of_text(line.start)
    if sought is not None and (known is None or sought.life > known.number):
        return Incarnation(sought.life, sought.ledger, line.tick_ms, sought.entry)
    return Incarnation(0, 0, line.tick_ms) if known is None and line.start == "earliest" else known

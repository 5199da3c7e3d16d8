"""What becomes of the messages of a batch whose keys may be those of others that wait (`state.unique`).

Both ways of ingest give the small columns of such rows in the order of arrival, and follow what is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pipeline.ingest.core.rules import BOUND, DUPLICATE, LATEST, ROW
from pipeline.ingest.core.terms import Terms
from pipeline.storage.arrays import IntArray, arrow_schema, completed, longs
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.uniqueness import Uniqueness
from schemas import OLDER, REPLACED
from state.buckets import MAX_TIME
from state.keys import NOBODY, Flags, KeyHashes, Waiting, WaitingKeys, places_of, positions_of
from state.unique import NONE, Held, Mode, Refused, Replaced, last_times, latest_times, refused, replaced
from state.units import us

KEY = "key in "
"""Columns with what messages are told apart by are called this and the property; the key of the message has no name."""
ASKED = ("topic", ROW, "published_ms", "due_ms")
"""The columns with which rows are asked about, beside those of `KEY`."""
ByRow = Callable[[IntArray], IntArray]
"""Something of accepted rows, by their numbers (`ROW`)."""
_REPLACED = arrow_schema(REPLACED.columns)


@dataclass(frozen=True)
class Until:
    """Until when what waits may have been taken, ms UTC.

    Attributes:
        now: the instant of the batch: what is due by then waits for nothing.
        taken: what is due by then may be with dispatch, and comes whatever replaces it; not before `now`.
        salt: of the hashes of keys.
        commanded: the places of messages of which commands said otherwise when the batch was decided: they wait though
            they are due by then, or do not though they are due later; None: it was not decided yet.
    """

    now: int
    taken: int
    salt: bytes
    commanded: IntArray | None = None

    def of(self, mode: Mode) -> int:
        """What is due by then is not waited for, or is not replaced, ms UTC."""
        return self.now if mode == Mode.DROP else self.taken


@dataclass(frozen=True)
class UniqueTopic:
    """A topic, with its partitions, on which messages may take the place of others that wait.

    Attributes:
        name: the topic.
        rule: what becomes of newer messages.
        waiting: what waits.
        last_due: when messages that wait come at last, by commands, ms UTC; below 0: they come to nobody who listens.
    """

    name: str
    rule: Uniqueness
    waiting: WaitingKeys
    last_due: Callable[[Waiting], IntArray]


@dataclass(frozen=True)
class _Part:
    """The rows of one topic that have a key, and what is decided of them.

    Attributes:
        topic: the topic.
        rows: their numbers in the batch.
        published: when they were published, ms UTC.
        due: when they would be due if nothing waited, ms UTC.
        keys: what they are told apart by.
        asks: which of them may replace others; None: all.
        held: what waits with these; its due times are the later ones of those at first and those by commands.
        commanded: the places of messages of which commands say otherwise (`Until`).
        refusal: which are refused, where the topic drops.
        latest: to when each may be put off at most, ms UTC, where the topic extends.
        bound: the same, where it bounds the row.
    """

    topic: UniqueTopic
    rows: IntArray
    published: IntArray
    due: IntArray
    keys: KeyHashes
    asks: Flags | None
    held: Held
    commanded: IntArray
    refusal: Refused | None = None
    latest: IntArray | None = None
    bound: IntArray | None = None


def key_names(topics: Topics) -> set[str]:
    """The properties by which messages of topics are told apart; the empty one stands for the key of the message."""
    return {name for rule in topics.unique.values() for name in rule.names}


def unique_rows(rows: pa.Table, topics: Topics) -> dict[str, IntArray]:
    """The topics on which keys may meet, with the numbers of their rows, ascending."""
    coded = rows.column("topic").cast(pa.binary()).combine_chunks().dictionary_encode()
    indices, found = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dict[str, list[int]]()
    for number, name in enumerate(coded.dictionary.to_pylist()):
        owner = topics.owner(name.decode(errors="surrogateescape"))
        if owner in topics.unique:
            found.setdefault(owner, []).append(number)
    return {owner: np.flatnonzero(np.isin(indices, numbers)) for owner, numbers in found.items()}


def asking(names: Iterable[str], topics: Topics) -> set[str]:
    """Of topics on which messages ask to replace others those that have no policy about it, and count together."""
    return {topics.owner(name) for name in names} - topics.unique.keys()


def keys_in(columns: Mapping[str, pa.ChunkedArray], rule: Uniqueness) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """What messages of a topic are told apart by, and which of them may replace others; None: all.

    Args:
        columns: `Uniqueness.names` of the messages, as bytes; NULL: there is none.
        rule: of the topic.
    """
    found = [columns[name] for name in rule.names]
    return pc.coalesce(*found), found[0].is_valid() if rule.asked else None


@dataclass(frozen=True)
class UniqueBatch:
    """What is decided of the rows of a batch, in the order of arrival.

    Attributes:
        parts: for each topic.
        taken: what is due by then may be with dispatch, and comes whatever comes behind it, ms UTC.
    """

    parts: Sequence[_Part] = ()
    taken: int = 0

    @classmethod
    def of(
        cls, rows: pa.Table, topics: Iterable[tuple[UniqueTopic, IntArray]], until: Until, forced: BitMap | None = None
    ) -> UniqueBatch:
        """Decide.

        Args:
            rows: `ASKED` and the columns of `KEY`, in the order of arrival, of rows that nothing else refuses.
            topics: those that have some of them, with the numbers of these.
            until: until when what waits may have been taken.
            forced: which rows are refused, when that was decided before.
        """
        found = (_part(rows, topic, own, until) for topic, own in topics)
        return cls([_decided(part, until, forced) for part in found if len(part.rows)], until.taken)

    @property
    def rows(self) -> IntArray:
        """The numbers of the rows of which something is decided."""
        return np.concatenate([np.empty(0, np.int64), *(part.rows for part in self.parts)])

    @property
    def refused(self) -> IntArray:
        """The numbers of rows that are refused."""
        found = (part.rows[part.refusal.flags] for part in self.parts if part.refusal is not None)
        return np.concatenate([np.empty(0, np.int64), *found])

    @property
    def commanded(self) -> IntArray:
        """The places of messages of which commands said otherwise (`Until`)."""
        return np.concatenate([np.empty(0, np.int64), *(part.commanded for part in self.parts)])

    @property
    def is_bound(self) -> bool:
        """Whether a row is due earlier than it would be if nothing waited."""
        return any(part.bound is not None and bool((part.bound < part.due).any()) for part in self.parts)

    def columns(self, count: int) -> dict[str, pa.Array]:
        """`BOUND`, `LATEST` and `DUPLICATE` of all rows of a batch of so many, by their numbers."""
        bound, latest, flags = np.full(count, MAX_TIME), np.full(count, MAX_TIME), np.zeros(count, np.bool_)
        for part in self.parts:
            if part.latest is not None and part.bound is not None:
                latest[part.rows], bound[part.rows] = part.latest, part.bound
        flags[self.refused] = True
        found = {name: pa.array(each, mask=each >= MAX_TIME) for name, each in ((BOUND, bound), (LATEST, latest))}
        return found | {DUPLICATE: pa.array(flags)}

    def ended(self, due: ByRow, numbers: ByRow, terms: Terms) -> EndedBatch:
        """What the batch comes to when all else is decided.

        Args:
            due: when accepted rows are due, ms UTC, by their numbers.
            numbers: their places in the order of the batch, by their numbers.
            terms: what decides the batch.
        """
        return EndedBatch([_ended(part, due, numbers, terms, self.taken) for part in self.parts], terms)


NO_KEYS = UniqueBatch()
"""Of a batch in which no keys may meet."""
Decide = Callable[[pa.Table, Mapping[str, IntArray], Topics], UniqueBatch]
"""Says what becomes of rows (`ASKED`, `KEY`), by topics on which keys may meet, which follow these policies."""


@dataclass(frozen=True)
class _End:
    """What is known of the rows of one topic at the end.

    Attributes:
        part: what was decided.
        places: the position of each row; `NONE`: it is refused.
        due: when each is due, ms UTC.
        said: what they replace; None: the topic refuses.
    """

    part: _Part
    places: IntArray
    due: IntArray
    said: Replaced | None


@dataclass(frozen=True)
class EndedBatch:
    """What a batch comes to: what it replaces, for what it refuses messages, and what waits from now on."""

    ends: Sequence[_End]
    terms: Terms

    @property
    def replaced(self) -> pa.Table:
        """Rows of `replaced`."""
        return pa.concat_tables([_REPLACED.empty_table(), *(_rows_of(end, self.terms) for end in self.ends)])

    def older(self, rows: IntArray) -> dict[str, pa.Array]:
        """The columns `OLDER` of rows, by their numbers: NULL for those that are not refused."""
        known = (rows, *(end.part.rows for end in self.ends))
        places = np.full(max(int(each.max(initial=-1)) for each in known) + 1, NONE)
        for end in self.ends:
            if (refusal := end.part.refusal) is not None:
                behind = refusal.flags & (refusal.older != NONE)
                places[end.part.rows] = np.where(refusal.flags, refusal.place, NONE)
                places[end.part.rows[behind]] = end.places[refusal.older[behind]]
        columns = (pa.array(each, mask=places[rows] == NONE) for each in positions_of(places[rows]))
        return dict(zip(OLDER, columns, strict=True))

    def take_in(self) -> None:
        """Let what waits be known from now on; all of the batch is committed."""
        for end in self.ends:
            part, gone, stays = end.part, NOBODY, np.flatnonzero(end.places != NONE)
            if end.said is not None:
                gone, stays = part.held.waiting.take(end.said.by != NONE), end.said.newest
            latest = np.full(len(stays), MAX_TIME) if part.latest is None else part.latest[stays]
            new = Waiting(part.keys.take(stays), end.places[stays], end.due[stays], latest)
            part.topic.waiting.change(gone, new, self.terms.now)


def _part(rows: pa.Table, topic: UniqueTopic, own: IntArray, until: Until) -> _Part:
    """The rows of a topic that have a key, and what waits with it."""
    mine = rows.take(pa.array(own))
    found, asks = keys_in({name: mine.column(KEY + name) for name in topic.rule.names}, topic.rule)
    mine = mine.filter(found.is_valid())
    flags = None if asks is None else asks.filter(found.is_valid()).to_numpy()
    keys = KeyHashes.of(found.drop_null().to_pylist(), until.salt)
    held = Held.of(keys, topic.waiting)
    # What is due is forgotten only where something changes.
    held, commanded = _by_commands(held.only(held.waiting.due > until.now), topic, until)
    numbers, published, due = (longs(mine, column) for column in ASKED[1:])
    return _Part(topic, numbers, published, due, keys, flags, held, commanded)


def _by_commands(held: Held, topic: UniqueTopic, until: Until) -> tuple[Held, IntArray]:
    """What of it waits, and the places of those of which commands say otherwise.

    When the batch was decided before, commands that came since change nothing: due times follow from what waits, and
    positions from due times.
    """
    if not len(held.numbers):
        return held, held.waiting.places
    due, last, then = held.waiting.due, topic.last_due(held.waiting), until.of(topic.rule.mode)
    said = (last > then) != (due > then)
    if until.commanded is not None:
        said = np.isin(held.waiting.places, until.commanded)
    # Commands that come before a repetition change no latest times.
    latest = last_times(held.waiting, then)
    later = Held(held.numbers, replace(held.waiting, due=np.maximum(due, last), latest=latest))
    return later.only((due > then) != said), held.waiting.places[said]


def _decided(part: _Part, until: Until, forced: BitMap | None) -> _Part:
    rule = part.topic.rule
    if rule.mode == Mode.EXTEND:
        latest, bound = latest_times(part.keys, part.due, part.published, part.held, until.taken, rule.max_wait_ms)
        return replace(part, latest=latest, bound=bound)
    if rule.mode == Mode.DROP:
        said = refused(part.keys, part.due, part.held, until.now)
        if forced is not None:
            flags = np.isin(part.rows, np.asarray(forced.to_array(), np.int64))
            said = Refused(flags, np.where(flags[said.older], NONE, said.older), said.place)
        return replace(part, refusal=said)
    return part


def _ended(part: _Part, due: ByRow, numbers: ByRow, terms: Terms, taken: int) -> _End:
    accepted = np.ones(len(part.rows), np.bool_) if part.refusal is None else ~part.refusal.flags
    places, times = np.full(len(part.rows), NONE), np.full(len(part.rows), NONE)
    order = numbers(part.rows[accepted])
    places[accepted] = places_of(terms.first_ledger + order // terms.entries, order % terms.entries)
    times[accepted] = due(part.rows[accepted])
    said = None if part.refusal is not None else replaced(part.keys, times, part.held, taken, part.asks)
    return _End(part, places, times, said)


def _rows_of(end: _End, terms: Terms) -> pa.Table:
    """Rows of `replaced`: what waited before the batch, and what arrived in it."""
    if end.said is None:
        return _REPLACED.empty_table()
    gone = end.said.by != NONE
    waited = end.part.held.waiting.take(gone)
    older = np.concatenate([waited.places, end.places[end.said.arrivals]])
    newer = end.places[np.concatenate([end.said.by[gone], end.said.by_arrivals])]
    due = np.concatenate([waited.due, end.due[end.said.arrivals]])
    order = np.argsort(older)
    ledgers, entries = positions_of(older[order])
    by_ledgers, by_entries = positions_of(newer[order])
    columns = {"ledger_id": ledgers, "entry_id": entries, "by_ledger_id": by_ledgers, "by_entry_id": by_entries}
    times = pa.array(due[order] * 1_000).cast(_REPLACED.field("due_time").type)
    same = {"topic": end.part.topic.name, "replaced_at": us(terms.now), "batch_id": terms.batch_id}
    arrays = {name: pa.array(each) for name, each in columns.items()} | {"due_time": times}
    return completed(_REPLACED, arrays, same, len(order))

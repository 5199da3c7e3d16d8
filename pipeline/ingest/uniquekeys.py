"""What waits on topics that let no two messages with one key wait, kept from batch to batch (decision 0145).

It is found in the tables when a batch first needs it: what waits there, of ledgers before the batch. So a start,
another policy and a batch that is repeated need nothing of their own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_bytes

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pipeline.config.options import Options
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import MINUTE_MS, LiveClock
from pipeline.config.stages import SCHEDULE
from pipeline.config.zones import check_rules
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.reading.messages import Bounds, MessageLog, messages
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.commandedtimes import CommandedTimes
from pipeline.ingest.core.uniqueness import KEY, Decide, EndedBatch, UniqueBatch, UniqueTopic, Until, keys_in
from pipeline.ingest.keyless import unique_keys
from pipeline.ingest.plan import Plan
from pipeline.storage.arrays import IntArray, arrow_schema, grouped, longs
from pipeline.storage.gather import first_items
from pipeline.storage.texts import with_texts
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.lines import NO_POLICIES, Topics
from pipeline.subscriptions.records import REPLACES
from pipeline.subscriptions.replacedlog import ReplacedLog
from pipeline.subscriptions.uniqueness import ON_REQUEST, Uniqueness
from schemas import MESSAGES
from state.buckets import MAX_TIME
from state.keys import NOBODY, KeyHashes, Waiting, WaitingKeys, places_of, positions_of
from state.positionset import PositionSet
from state.unique import Mode
from state.units import EPOCH, Ms

_SALT_BYTES = 16
_ASKED_MS = 60 * MINUTE_MS
"""So long after a message that asked to replace others what waits on its topic stays known."""
_READ = ("topic", "ledger_id", "entry_id", "due_time", "publish_time", "latest_due")


class UniqueKeys:
    """What waits, by key, for each topic that has the policy."""

    def __init__(self, warehouse: Warehouse, log: MessageLog, options: Options) -> None:
        """Nothing is read before a batch needs it; `log` is that of `messages`."""
        clock, schedule = options.clock, warehouse.checkpoint(SCHEDULE)
        self._express_ms = options.settings.express_ms or 0
        # By a virtual clock the schedule does not run ahead.
        self._step_ms = clock.resolution_ms if isinstance(clock, LiveClock) else 0
        self._schedule = Checkpoint(warehouse.files, schedule) if self._step_ms else None
        self._log, self._replaced, self._times = log, ReplacedLog(warehouse), CommandedTimes(warehouse)
        self._salt = token_bytes(_SALT_BYTES)
        self._known: dict[str, tuple[Uniqueness, WaitingKeys]] = {}
        self._asked: dict[str, Ms] = {}
        self._followed = NO_POLICIES, NO_POLICIES

    def taken(self, now: Ms) -> int:
        """What is due by then may be with dispatch, ms UTC.

        While a batch is at work the schedule may take its next step.
        """
        ahead = EPOCH if self._schedule is None else self._schedule.instant
        return max(now + self._express_ms, ahead + self._step_ms)

    def took(self, ended: EndedBatch | None) -> None:
        """Know what a batch comes to; None: it was repeated, and what waits is found in the tables again."""
        if ended is None:
            self._known = {}
        else:
            ended.take_in()

    def followed(self, topics: Topics, now: Ms) -> Topics:
        """Policies of topics, with those on which messages asked to replace others not long before an instant (ms UTC).

        What waits there stays known so long.
        """
        is_other = topics is not self._followed[0]
        if is_other:
            known = self._known.items()
            self._known = {name: each for name, each in known if topics.unique.get(name, ON_REQUEST) == each[0]}
        for name, last in list(self._asked.items()):
            if last + _ASKED_MS < now or name not in self._known:
                del self._asked[name]
                self._known.pop(name, None)
        if is_other or self._followed[1].replacing != self._asked.keys():
            self._followed = topics, topics.with_replacing(self._asked)
        return self._followed[1]

    def decide(self, plan: Plan, lives: Callable[[], Mapping[Name, Incarnation]]) -> Decide:
        """What says what becomes of the rows of a batch.

        Args:
            plan: of the batch; it names the rows that are refused when that was decided before.
            lives: gives those of subscriptions, as ingest knows them.
        """
        return partial(self._decided, plan, lives)

    def _decided(
        self,
        plan: Plan,
        lives: Callable[[], Mapping[Name, Incarnation]],
        rows: pa.Table,
        by_topic: Mapping[str, IntArray],
        topics: Topics,
    ) -> UniqueBatch:
        if not by_topic.keys() <= self._known.keys():
            self._load(plan, topics)
        for name, numbers in by_topic.items():
            # Whose rows are known is followed: each further batch has to be taken in.
            if topics.unique[name].asked and (name not in self._asked or _some_ask(rows, numbers)):
                self._asked[name] = plan.now
        taken = self.taken(plan.now) if plan.refused is None else plan.taken
        until = Until(plan.now, max(plan.now, taken), self._salt, commanded_of(plan.commanded))
        listeners = lives()
        found = [(self._topic(name, topics, listeners), numbers) for name, numbers in by_topic.items()]
        return UniqueBatch.of(rows, found, until, refused_of(plan.refused))

    def _topic(self, name: str, topics: Topics, lives: Mapping[Name, Incarnation]) -> UniqueTopic:
        rule, waiting = self._known[name]

        def last_due(messages: Waiting) -> IntArray:
            return self._times.last_due(lives, lambda topic: topics.owner(topic) == name, messages.places, messages.due)

        return UniqueTopic(name, rule, waiting, last_due)

    def _load(self, plan: Plan, topics: Topics) -> None:
        """Find what waits on topics that are not known yet, by one look at what waits at all."""
        new = {name: rule for name, rule in topics.unique.items() if name not in self._known}
        if not plan.first_ledger:
            found = {name: WaitingKeys(bounded=rule.mode == Mode.EXTEND) for name, rule in new.items()}
        else:
            bounds = Bounds(last_ledger=plan.first_ledger - 1, first_due=plan.now + 1)
            gone = _gone(self._replaced.waiting(plan.now, plan.first_ledger))
            try:
                found = self._waiting(new, topics, self._rows_here(bounds, _columns(new)), gone, plan)
            except NotInDriver:
                found = self._waiting(new, topics, self._rows_by_spark(bounds, _columns(new)), gone, plan)
        self._known |= {name: (rule, found[name]) for name, rule in new.items()}

    def _waiting(
        self, new: Mapping[str, Uniqueness], topics: Topics, rows: Iterator[pa.Table], gone: IntArray, plan: Plan
    ) -> dict[str, WaitingKeys]:
        found = {name: WaitingKeys(bounded=rule.mode == Mode.EXTEND) for name, rule in new.items()}
        for piece in rows:
            for values, numbers in grouped(piece, ["topic"]):
                name = topics.owner(values["topic"])
                if name in new:
                    own = _messages(piece.take(pa.array(numbers)), new[name], self._salt)
                    found[name].change(NOBODY, own.take(~np.isin(own.places, gone)), plan.now)
        return found

    def _rows_here(self, bounds: Bounds, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Messages within bounds.

        Raises:
            NotInDriver: only Spark reaches them, or they are not what the table says.
        """
        return (pa.Table.from_batches([batch]) for batch in messages(self._log, bounds, columns))

    def _rows_by_spark(self, bounds: Bounds, columns: Sequence[str]) -> Iterator[pa.Table]:
        schema = arrow_schema(MESSAGES.columns)
        rows = self._log.read([bounds]).where(bounds.inside).select(*columns).toArrow()
        yield with_texts(rows.cast(pa.schema([schema.field(name) for name in columns])))


def _some_ask(rows: pa.Table, numbers: IntArray) -> bool:
    """Whether some of these rows, by their numbers, ask to replace others."""
    asked = rows.column(KEY + REPLACES).take(pa.array(numbers))
    return bool(asked.null_count < len(asked))


def with_decided(plan: Plan, batch: UniqueBatch) -> Plan:
    """A plan with what is decided of its rows, so that a repetition decides the same, whatever commands say by then."""
    if not batch.parts:
        return plan
    commanded = commanded_note(batch.commanded)
    return replace(plan, taken=batch.taken, refused=refused_text(batch.refused), commanded=commanded)


def check_again(plan: Plan, batch: UniqueBatch, topics: Topics) -> None:
    """Refuse to say what is replaced, by positions that are found again, by other rules of time zones than the plan's.

    Positions follow from due times, and these from the rules where a topic has a window.

    Raises:
        OtherRules: it is so.
    """
    if any(topics.of(part.topic.name).opening is not None for part in batch.parts):
        check_rules(plan.rules)


def refused_of(text: str | None) -> BitMap | None:
    """The rows that a plan says are refused; None: it was not decided yet."""
    return None if text is None else BitMap.deserialize(base64.b64decode(text)) if text else BitMap()


def refused_text(rows: IntArray) -> str:
    """The same for a plan; empty: none are."""
    return base64.b64encode(BitMap(rows.astype(np.uint32)).serialize()).decode() if len(rows) else ""


def commanded_note(places: IntArray) -> tuple[tuple[int, str], ...]:
    """Messages of which commands said otherwise, for a plan: a ledger, and the text of its entries."""
    named = PositionSet.at(*positions_of(places)) if len(places) else PositionSet()
    return tuple((ledger, base64.b64encode(own.serialize()).decode()) for ledger, own in named.by_ledger())


def commanded_of(note: Iterable[tuple[int, str]] | None) -> IntArray | None:
    """The places of the same; None: it was not decided yet."""
    if note is None:
        return None
    named = ((ledger, BitMap.deserialize(base64.b64decode(text)).to_array()) for ledger, text in note)
    found = (places_of(np.full(len(own), ledger), np.asarray(own, np.int64)) for ledger, own in named)
    return np.concatenate([np.empty(0, np.int64), *found])


def _columns(rules: Mapping[str, Uniqueness]) -> list[str]:
    """The columns of `messages` that say what waits, and by what it is told apart; a property says what recurs."""
    by = {"message_key" for rule in rules.values() if "" in rule.names}
    return [*_READ, *by, "properties"]


def _gone(replaced: Iterable[pa.Table]) -> IntArray:
    """The places of positions that are replaced."""
    found = [places_of(longs(rows, "ledger_id"), longs(rows, "entry_id")) for rows in replaced]
    return np.concatenate([np.empty(0, np.int64), *found])


def _messages(rows: pa.Table, rule: Uniqueness, salt: bytes) -> Waiting:
    """Messages of one topic that have a key."""

    def property_of(name: str) -> pa.ChunkedArray:
        return pa.chunked_array([first_items(each, name) for each in rows.column("properties").chunks], pa.binary())

    found = {n: property_of(n) if n else rows.column("message_key").cast(pa.binary()) for n in rule.names}
    keys = unique_keys(keys_in(found, rule)[0], property_of)
    rows, keys = rows.filter(keys.is_valid()), keys.drop_null()
    due, latest = longs(rows, "due_time") // 1_000, np.full(rows.num_rows, MAX_TIME)
    if rule.mode == Mode.EXTEND:
        published = -(-longs(rows, "publish_time") // 1_000)
        own = np.minimum(np.maximum(due, published + rule.max_wait_ms), MAX_TIME)
        stated = pc.fill_null(rows.column("latest_due").cast(pa.int64()), -1_000).to_numpy() // 1_000
        latest = np.where(stated < 0, own, stated)
    places = places_of(longs(rows, "ledger_id"), longs(rows, "entry_id"))
    return Waiting(KeyHashes.of(keys.to_pylist(), salt), places, due, latest)

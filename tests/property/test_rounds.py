"""Rounds of messages against a plain model: commands, releases, dispatch and settle in any order, and any of them dies.

Each of the two stages is a coroutine that stops at every look and every commit. What they decide with is the code that
they use; tables are lists.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

pytest.importorskip("pyspark", reason="columns are described by Spark's types")

from pipeline.dispatch.core.withdrawn import Withdrawn
from pipeline.settle.core.fold import unheard
from pipeline.settle.moves import Moves
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commandlog import Commanded
from pipeline.subscriptions.commands import READ, moves, withdrawals
from schemas import COMMANDS, REDELIVERY
from state import Ack, Event, LeftOut, Move, Moved, Nack, Outstanding, Positions, Released, Retry
from state.positionset import PositionSet
from state.units import Ms
from state.withdrawals import Round, Rounds

ENTRIES = range(4)
FAR = 10**6
Steps = Generator[None, None, None]


class Entry(NamedTuple):
    """Of the index, and a row of `redelivery`: an entry of ledger 1 in a round."""

    entry: int
    failed: int
    round: int
    due: int


class Delivery(NamedTuple):
    """A row of `deliveries`, with how many commands dispatch had seen."""

    of: Entry
    seen: int


def places(entries: list[int]) -> Positions:
    """Positions of ledger 1."""
    return Positions.of_runs([(1, each, each) for each in entries])


def time(ms: int) -> datetime:
    """An instant."""
    return datetime.fromtimestamp(ms / 1_000, UTC)


class Tables:
    """What is committed."""

    def __init__(self) -> None:
        """Four messages wait, due one after the other."""
        self.now = 1_000
        self.commands: list[dict[str, Any]] = []
        self.index = [Entry(each, 0, 0, 1_010 + 10 * each) for each in ENTRIES]
        self.redelivery: list[list[Entry]] = []
        self.rejected: list[list[tuple[Entry, str]]] = []
        self.deliveries: list[Delivery] = []
        self.events: list[Event] = []

    def rows(self, upto: int | None = None) -> pa.Table:
        """Rows of `commands`."""
        return pa.Table.from_pylist(self.commands[:upto], schema=arrow_schema(COMMANDS.columns)).select(READ)

    def tick(self, ms: int) -> None:
        """The schedule releases what is due."""
        self.now += ms
        due = [each for each in self.index if each.due <= self.now]
        self.index = [each for each in self.index if each.due > self.now]
        if due:
            self.redelivery.append(due)


class Log:
    """The rows of `commands`, as settle follows them: now and then it begins anew."""

    def __init__(self, tables: Tables) -> None:
        """Nobody has looked."""
        self._tables = tables
        self._seen: int | None = None

    def look(self) -> Commanded:
        """The rows that came since the last look; all of them at the first one."""
        rows, seen = self._tables.rows(), self._seen
        self._seen = rows.num_rows
        return Commanded(rows.num_rows, rows.slice(seen or 0), anew=seen is None)

    def forget(self) -> None:
        """Nothing is below the mark."""
        self._seen = None


class Became:
    """What became of rounds, as settle looks it up."""

    def __init__(self, tables: Tables, *, left_out: bool) -> None:
        """By `redelivery`, or by `rejected_dispatch`."""
        self._tables, self._left_out = tables, left_out

    def of(self, of: Round, _: PositionSet) -> Rounds:
        """All of it, as of now."""
        rejected = (e for rows in self._tables.rejected for e, reason in rows if reason == "rescheduled")
        rows = rejected if self._left_out else (e for rows in self._tables.redelivery for e in rows)
        found: dict[int, list[int]] = defaultdict(list)
        for each in rows:
            if each.failed == of.redelivery_count:
                found[each.round].append(each.entry)
        return {number: PositionSet.of(places(entries)) for number, entries in found.items()}


def dispatch(tables: Tables, done: int) -> Steps:
    """Batches of dispatch, from a version of `redelivery` on; a batch that said what it leaves out is finished so."""
    while True:
        end = len(tables.redelivery)
        yield
        if end > done:
            seen = len(tables.commands)
            batch = [each for rows in tables.redelivery[done:end] for each in rows]
            yield
            released = [
                {"topic": "t", "subscription": "s", "life": 1, "ledger_id": 1, "first_entry": e.entry, "batch_id": n}
                | {"last_entry": e.entry, "redelivery_count": e.failed, "round": e.round}
                for n, e in enumerate(batch)
            ]
            rows = pa.Table.from_pylist(released, schema=arrow_schema(REDELIVERY.columns))
            left, gone = Withdrawn(0, withdrawals(tables.rows(seen)).left_out()).split_withdrawn(rows)
            tables.rejected.append([(batch[row["batch_id"]], row["reason"]) for row in gone.to_pylist()])
            # What it has said is repeated by who finishes the batch: the two are one step here.
            tables.deliveries += [Delivery(batch[row["batch_id"]], seen) for row in left.to_pylist()]
            done = end
            tables.dispatched = done  # type: ignore[attr-defined] # the place of the checkpoint
            yield


class Settled:
    """What settle has committed: how far it read, and its state."""

    def __init__(self) -> None:
        self.read = (0, 0, 0, 0)
        self.state = Outstanding()
        self.plan: tuple[int, int, int, int] | None = None
        self.put: list[Move] = []


def settle(tables: Tables, kept: Settled, *, acks: bool) -> Steps:
    """Batches of settle, on the state that was committed."""
    became = (Became(tables, left_out=each) for each in (False, True))
    found = Moves(*cast("Any", (Log(tables), *became)))
    whole = kept.state.snapshot()
    state = Outstanding.restore(whole.head, {n: block for n, block in whole.blocks.items() if block is not None})
    while True:
        if kept.plan is None:
            events = len(tables.events)
            yield
            refused = len(tables.rejected)
            yield
            commands = len(tables.commands)
            yield
            plan, torn = (events, refused, commands, len(tables.redelivery)), None
        else:
            plan, torn = kept.plan, kept.put
        yield
        found.take(moves(tables.rows(plan[2]).slice(kept.read[2])))
        happened = list(_happened(tables, kept.read, plan))
        happened = happened if acks else list(unheard(happened))
        effects = state.handle(*happened, now=Ms(tables.now))
        left_out = [each for each in happened if isinstance(each, LeftOut) and each.waits]
        put = list(found.of(("t", "s"), 1, state, left_out)) if torn is None else torn
        effects += state.handle(*put, *tables.events[kept.read[0] : plan[0]], now=Ms(tables.now))
        if torn is None:
            kept.plan, kept.put = plan, [_again(each) for each in effects if isinstance(each, Moved)]
            tables.index += list(_entries(effects, found, tables.now))
            yield
        kept.read, kept.state, kept.plan = plan, state, None
        yield


def _happened(tables: Tables, begin: tuple[int, ...], end: tuple[int, ...]) -> Iterator[Event]:
    for version in range(begin[3], end[3]):
        for each in tables.redelivery[version]:
            yield Released(places([each.entry]), each.round, version)
        # All of a version come in one call.
    for rows in tables.rejected[begin[1] : end[1]]:
        yield from (LeftOut(places([e.entry]), e.round) for e, reason in rows if reason == "rescheduled")


def _again(moved: Moved) -> Move:
    return Move(moved.positions, moved.redelivery_count, moved.round, fresh=True)


def _entries(effects: list[Any], found: Moves, now: int) -> Iterator[Entry]:
    for each in effects:
        if isinstance(each, Moved):
            runs = found.due(("t", "s"), 1, each).expanded()
            for entry, due in zip(runs.entry_ids.tolist(), runs.due.tolist(), strict=True):
                yield Entry(entry, each.redelivery_count, each.round, max(due, now))
        elif isinstance(each, Retry):
            for _, entries in each.positions.by_ledger():
                yield from (Entry(e, each.redelivery_count, each.round, now + 5) for e in entries)


class RoundsMachine(RuleBasedStateMachine):
    """Users, a clock, two stages, and what kills them."""

    @initialize(acks=st.booleans())
    def begin(self, *, acks: bool) -> None:
        """A subscription, which acknowledges or does not."""
        self.acks, self.tables, self.kept = acks, Tables(), Settled()
        self.tables.dispatched = 0  # type: ignore[attr-defined]
        self.dispatch, self.settle = dispatch(self.tables, 0), settle(self.tables, self.kept, acks=acks)
        self.said: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        self.nacked = Counter[int]()
        self.acked = set[int]()

    def step(self, stage: Steps) -> None:
        """One look or commit."""
        next(stage)

    @rule(entries=st.sets(st.sampled_from(ENTRIES), min_size=1), due=st.integers(5, 90), twice=st.booleans())
    def move(self, entries: set[int], due: int, *, twice: bool) -> None:
        """Somebody gives what waits another due time; the row may be appended twice."""
        pending = {each: self.nacked[each] for each in entries if each not in self.acked}
        shown = Counter(each.of.entry for each in self.tables.deliveries)
        rows = []
        for entry, count in pending.items():
            if shown[entry] > count:
                continue
            known = [n for (e, k), n in self.last().items() if (e, k) == (entry, count)]
            number = max([self.base(entry, count), *known]) + 1
            rows.append(self.row(entry, count, number, due))
        self.tables.commands += rows * (2 if twice else 1)

    def row(self, entry: int, count: int, number: int, due: int) -> dict[str, Any]:
        """A row of `commands`."""
        of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": 1, "first_entry": entry, "last_entry": entry}
        columns = {"kind": "shift", "command_id": "c", "redelivery_count": count, "round": number}
        return {**of, **columns, "due_time": time(FAR), "deliver_at": time(self.tables.now - 30 + due)}

    def last(self, upto: int | None = None) -> dict[tuple[int, int], int]:
        """The highest round that commands made, by entry and count."""
        found: dict[tuple[int, int], int] = {}
        for row in self.tables.commands[:upto]:
            key = row["first_entry"], row["redelivery_count"]
            found[key] = max(found.get(key, 0), row["round"])
        return found

    def base(self, entry: int, count: int) -> int:
        """The round in which it was put into the index when it failed for the n-th time; as `cursors` says it."""
        rounds = [e.round for e in self.every() if (e.entry, e.failed) == (entry, count)]
        return min(rounds, default=count)

    def every(self) -> list[Entry]:
        """All that was ever in the index."""
        return [*self.tables.index, *(e for rows in self.tables.redelivery for e in rows)]

    @rule(ms=st.integers(0, 15))
    def tick(self, ms: int) -> None:
        """Time goes on."""
        self.tables.tick(ms)

    @rule()
    def dispatch_goes_on(self) -> None:
        """By one step."""
        self.step(self.dispatch)

    @rule()
    def settle_goes_on(self) -> None:
        """By one step."""
        self.step(self.settle)

    @rule()
    def dispatch_dies(self) -> None:
        """And begins the batch again."""
        self.dispatch = dispatch(self.tables, self.tables.dispatched)  # type: ignore[attr-defined]

    @rule()
    def settle_dies(self) -> None:
        """And begins with what it has committed."""
        self.settle = settle(self.tables, self.kept, acks=self.acks)

    @precondition(lambda self: self.acks)
    @rule(entry=st.sampled_from(ENTRIES), ack=st.booleans())
    def consume(self, entry: int, *, ack: bool) -> None:
        """A consumer settles a delivery, or lets it fail."""
        shown = [each.of for each in self.tables.deliveries if each.of.entry == entry]
        if entry in self.acked or len(shown) <= self.nacked[entry] or self.nacked[entry] > 1:
            return
        if ack:
            self.tables.events.append(Ack(places([entry]), shown[-1].failed))
            self.acked.add(entry)
        else:
            self.tables.events.append(Nack(places([entry]), self.nacked[entry]))
            self.nacked[entry] += 1

    def teardown(self) -> None:
        """Everything comes to its end; then each message was delivered as it should be."""
        if not hasattr(self, "tables"):
            return
        for _ in range(6):
            for stage in (self.dispatch, self.settle, self.dispatch, self.settle):
                for _ in range(12):
                    next(stage)
            self.tables.tick(200)
        assert not self.tables.index
        shown = Counter((each.of.entry, each.of.failed) for each in self.tables.deliveries)
        assert shown == {(e, k): 1 for e in ENTRIES for k in range(self.nacked[e] + 1)}
        for of, seen in self.tables.deliveries:
            # The last round of which dispatch could know, at the time that the command said, and not before.
            assert of.round >= self.last(seen).get((of.entry, of.failed), 0)
            said = [r for r in self.tables.commands if (r["first_entry"], r["round"]) == (of.entry, of.round)]
            assert all(of.due >= int(each["deliver_at"].timestamp() * 1_000) for each in said)
        if not self.acks:
            assert not any(self.kept.state.counts)


def test_each_message_comes_in_one_round_at_its_last_valid_time() -> None:
    """Whatever is commanded when, and whatever dies."""
    examples = max(1, settings().max_examples * 3 // 5)
    run_state_machine_as_test(RoundsMachine, settings=settings(stateful_step_count=60, max_examples=examples))


@pytest.mark.parametrize("acks", [True, False])
@pytest.mark.parametrize("dies", [True, False])
def test_what_was_undecided_when_its_command_came_is_put_back_when_it_is_left_out(*, acks: bool, dies: bool) -> None:
    """Also by a settle that began after the command was read."""
    machine = RoundsMachine()
    machine.begin(acks=acks)
    machine.tick(15)
    machine.move({0}, 90, twice=False)
    for _ in range(8):
        machine.settle_goes_on()
    assert not any(each.round for each in machine.every())
    if dies:
        machine.settle_dies()
    machine.teardown()
    (first,) = [each.of for each in machine.tables.deliveries if each.of.entry == 0]
    assert (first.round, first.due) == (1, 1_075)

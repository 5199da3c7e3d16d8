"""The schedule without a JVM: the function that Spark calls with each key of the state, called here."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.options import Observer
from pipeline.config.stages import SCHEDULE
from pipeline.delta.checkpoints import COMMITS, EVERYTHING_BEFORE, Position
from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import BatchCommits
from pipeline.delta.writing.oncewriter import Sink
from pipeline.schedule.stage import REBUILD
from pipeline.settle.sources import Source
from pipeline.testing.batches import Batches
from pipeline.testing.keystate import KeyState
from pipeline.worker.release import RELEASE, Answer, Sent, released
from pipeline.worker.unpack import RUN, Refusals, Unpacker
from schemas import REDELIVERY, REJECTED_SCHEDULE, SEGMENTS
from state.units import Ms

_KINDS = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}
_ANSWER = pa.schema([(name, _KINDS[kind]) for name, kind in (field.split() for field in RELEASE.split(", "))])
"""`pipeline.worker.release.RELEASE` as Arrow has it."""
_STATE = "state.json"
Key = tuple[int, int]
State = tuple[tuple[Any, ...], int]
"""What Spark would keep of a key: a row of `STATE_ROW`, and when it is woken, ms."""


class Schedule:
    """The index without a JVM: the function that Spark calls with each key, called here; it lies in the checkpoint.

    `pipeline.schedule.keys.addressed` says whose index a row is for; here that is said in Python.
    """

    def __init__(self, warehouse: Warehouse, observe: Observer) -> None:
        """Go on where the checkpoint ends."""
        self._source = Source(warehouse, SEGMENTS, SEGMENTS.columns.names)
        self.book, self._observe = Batches(warehouse, SCHEDULE), observe
        self._files, self._path = warehouse.files, warehouse.path(SEGMENTS)
        self.sinks = {table.name: Sink(warehouse, table, SCHEDULE, self.book.wrote) for table in COMMITS[SCHEDULE]}
        text = self.book.text(_STATE)
        kept = [] if text is None else json.loads(text)
        self.states: dict[Key, State] = {(key[0], key[1]): _loaded(*state) for key, state in kept}

    @property
    def waiting(self) -> int:
        """How many positions wait."""
        return sum(int(row[2]) for row, _ in self.states.values())

    @property
    def next_due(self) -> int | None:
        """The first instant at which something that waits is due, ms UTC; None: nothing waits."""
        # A key is called when the watermark has passed its alarm.
        return min((alarm + 1 for _, alarm in self.states.values()), default=None)

    def has_work(self, instant: int) -> bool:
        """Whether there is something for a batch at an instant (ms UTC): one that died, rows, or a later instant."""
        begin = self.book.start(self.book.next)
        return self.book.died or begin.version <= newest(self._files, self._path) or begin.instant < instant

    def step(self, instant: int) -> None:
        """Take in what is new, and release what is due, unless there is nothing to do; first a batch that died."""
        if not self.has_work(instant):
            return
        last = newest(self._files, self._path) + 1
        begin = self.book.start(self.book.next)
        if not self.book.died:
            self.book.plan(Position(Ms(max(instant, begin.instant)), max(last, begin.version), EVERYTHING_BEFORE))
        number, end, rebuilt = self.book.next, self.book.position(self.book.next), self.book.origin.rebuilt
        sent: defaultdict[Key, list[Sent]] = defaultdict(list)
        for _, rows in self._source.versions(begin.version - 1, end.version - 1):
            for row in rows.to_pylist():
                if row["kind"] != REBUILD or row["batch_id"] == rebuilt:
                    for owner, tick in _owners(row):
                        sent[0, _ms(row["segment_start"])].append((owner, tick, row["chunk"]))
        answers, states = self._called(sent, end.instant)
        self._commit(answers, number, {**end.as_dict(), "begin": begin.offset})
        self.states = states
        kept = [(key, _kept(*state)) for key, state in states.items()]
        self.book.put(_STATE, json.dumps(kept))
        self.book.commit()

    def _called(self, sent: Mapping[Key, list[Sent]], watermark: int) -> tuple[pa.Table, dict[Key, State]]:
        """The answers of all keys with rows, or whose alarm fires, at a watermark (ms); and what they keep."""
        states, answers = dict(self.states), list[Answer]()
        for key in sorted(sent.keys() | {key for key, (_, alarm) in states.items() if alarm < watermark}):
            row, _ = states.pop(key, (None, 0))
            state = KeyState(row, watermark, timed_out=key not in sent)
            answers += released(key, sent.get(key, ()), state)
            if state.exists and state.alarm is not None:
                states[key] = state.get, state.alarm
        columns = zip(*answers, strict=True) if answers else [[]] * len(_ANSWER)
        return pa.table(
            [pa.array(each, field.type) for each, field in zip(columns, _ANSWER, strict=True)], _ANSWER
        ), states

    def _commit(self, answers: pa.Table, number: int, note: dict[str, Any]) -> None:
        if not answers.num_rows:
            return
        self._observe("schedule.counted", number)
        commits = BatchCommits(SCHEDULE, self.sinks, self.book.owner or "", number, self._observe)
        failed = answers.filter(pc.is_valid(answers.column("error"))).to_batches()
        if failed:
            commits.append(REJECTED_SCHEDULE, pa.Table.from_batches(Refusals(number)(iter(failed))), note)
        runs = answers.filter(pc.is_null(answers.column("error"))).to_batches()
        if runs:
            commits.append(REDELIVERY, pa.Table.from_batches(Unpacker(number).of_owners(iter(runs)), RUN), note)
        for sink in self.sinks.values():
            sink.appender.checkpoint()


def _owners(row: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The names of the indexes that a row of `segments` is for, with their ticks."""
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for who in sorted(
        row["subscriptions"] if row["kind"] != "marker" else (), key=itemgetter("tick_ms", "name", "life")
    ):
        alike[who["tick_ms"]] += [who["name"], str(who["life"])]
    number = ".".join(str(each) for each in (row["redelivery_count"], row["round"]) if each is not None)
    again = [] if row["cause"] is None else [f"{number}:{row['cause']}"]
    for tick, names in alike.items():
        yield json.dumps([row["topic"], *names, *again]), tick


def _ms(time: datetime | None) -> int:
    return 0 if time is None else int(time.timestamp() * 1_000)


def _kept(row: tuple[Any, ...], alarm: int) -> list[Any]:
    *others, data = row
    return [*others, b64encode(bytes(data)).decode(), alarm]


def _loaded(version: int, due: int, count: int, data: str, alarm: int) -> State:
    return (version, due, count, b64decode(data)), alarm

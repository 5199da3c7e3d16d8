"""Receiving: the commits of `deliveries`, one after the other, each in its sequence.

A commit is a batch of dispatch, and a version of the Delta log. The log is read, not the table: it knows which rows
are new, in which order they became visible, and when. Nothing is held but the rows of one row group. What was delivered
before the beginning of the log is read from the table, in the order of deliveries, as far as the rows know it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.client.clock import is_turned, is_virtual
from pipeline.client.tables.datarows import ORDER, DataFile, DataRows, data_file
from pipeline.client.tables.partitions import topic_partitions
from pipeline.client.tables.tail import Actions, Tail, files_at
from pipeline.config.errors import VersionGone
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import appended, info_of, oldest
from pipeline.storage.files import Files
from pipeline.storage.merge import Source, merged
from pipeline.storage.parquet import typed
from pipeline.subscriptions.topicnames import plain_topic
from schemas import DELIVERIES

_PLACE = "place"
_BEFORE_ALL = (-1, 0)
"""An order that comes before all others."""
_MOST_AT_ONCE, _TAKEN_APART = 8_192, 1_024
"""Rows that are read together, and that are Python's at a time."""
Wanted = Mapping[str, str | tuple[str, ...]]
"""Columns, and the value that is wanted, or one of several."""
_ALL: Wanted = {}
_Ordered = tuple[tuple[int, int], dict[str, Any]]
"""A row after its version and place."""


@dataclass(frozen=True)
class Delivery:
    """A message as a subscription got it; times UTC.

    Attributes:
        topic: its topic.
        subscription: who got it.
        position: (ledger, entry) in the topic's log.
        order: (version of `deliveries`, place in it from 1 on): ascends in the order of delivery. What was delivered
            before the beginning of the log has the version with which it begins.
        key: the message's key.
        properties: what travelled beside the payload.
        publish_time: when it was sent.
        deliver_at: the time asked for; None: at once.
        visible_at: when the commit made it visible; in a replay, the virtual instant of its release. None for what was
            delivered before the beginning of the log, which knew it; the view `lateness` still does.
        due_time: when it was due, rounded up to the tick of the subscription.
        redelivery_count: 0 the first time.
        payload: the bytes sent.
        cause: why it came: `due`, `express`, `rescheduled` by a command, or what made it come again.
    """

    topic: str
    subscription: str
    position: tuple[int, int]
    order: tuple[int, int]
    key: str | None
    properties: dict[str, str | None]
    publish_time: datetime
    deliver_at: datetime | None
    visible_at: datetime | None
    due_time: datetime
    redelivery_count: int
    payload: bytes
    cause: str = "due"

    @property
    def late_s(self) -> float | None:
        """Seconds between `due_time` and the time at which the message became visible, if known. Never negative."""
        return None if self.visible_at is None else (self.visible_at - self.due_time).total_seconds()

    @property
    def since_deliver_at_s(self) -> float | None:
        """Seconds since the time that was asked for, or since the message was sent, if that was later: with the tick.

        None: no time was asked for, or nobody knows when the message became visible.
        """
        if self.visible_at is None or self.deliver_at is None:
            return None
        return (self.visible_at - max(self.deliver_at, self.publish_time)).total_seconds()


class Deliveries:
    """The deliveries of a warehouse from a version on. Each call of `take` gives what has been committed since.

    Attributes:
        newest: the newest version at the beginning.
        virtual: whether a virtual clock decides what is visible.
    """

    def __init__(self, root: str, *, earliest: bool = True, begin: int | None = None) -> None:
        """Stand before the first delivery that the table still holds, or behind the last one, or before a version.

        Raises:
            NoWarehouse: the folder has no deliveries.
            BrokenVersion: the newest version of the table is empty or cut short.
        """
        self.root, self.newest = root, open_table(root, DELIVERIES).version()
        self._folder, self._files = path_of(root, DELIVERIES), Files()
        self._data = DataRows(self._folder, self._files)
        # In a replay, and where a test turns the clock, what the wall clock said at a commit means nothing.
        self.virtual = is_turned(root) or is_virtual(root)
        self._older = self._history() if earliest and begin is None else None
        self._topics = dict[str, tuple[str, ...]]()
        self._given, self._wanted = _BEFORE_ALL, _ALL
        behind = self.newest if not earliest else -1 if self._older is None else self._older[0]
        self._tail = Tail(self._files, self._folder, behind + 1 if begin is None else begin)

    def take(self, topic: str | None = None, subscription: str | None = None) -> Iterator[Delivery]:
        """The deliveries that became visible since the last call, in order; of one topic or subscription when named.

        A topic means its partitions, too: those that it has when it is named first.

        Costs one look at the log and one pass over the new files. What was delivered before the beginning of the log
        comes with the first call, in the order in which it was due. What a store did not give comes with the next one.
        Whoever ends a call before it is over has passed over the rest of the version.

        Raises:
            OSError: the store did not give a version, or a file of it.
            VersionGone: maintenance removed the log entry of a version, or a file of it.
            BrokenVersion: a version is empty or cut short.
        """
        wanted, older = self._named(topic, subscription), self._older
        self._older = None
        if older is not None:
            version, files = older
            found = self._data.of(files, version, partial(_matching, wanted=wanted), DELIVERIES.columns.names)
            if wanted != self._wanted:
                # Places in the table are those among the rows that are wanted.
                self._given, self._wanted = _BEFORE_ALL, wanted
            try:
                yield from self._new(_ordered(version, _numbered(found)), None)
            except OSError:
                self._older = older
                raise
        for version, log in self.commits():
            try:
                yield from self._new(self._commit(version, log, wanted), info_of(log).get("timestamp", 0))
            except OSError:
                self._tail.next = version
                raise

    def commits(self) -> Iterator[tuple[int, Actions]]:
        """The versions since the last call, each with the actions of its commit; of what the log says only.

        Raises:
            VersionGone, BrokenVersion: as `take`.
        """
        while (log := self._tail.upcoming()) is not None:
            self._tail.next += 1
            yield self._tail.last, log

    @property
    def next_version(self) -> int:
        """The version that comes next."""
        return self._tail.next

    def rows(
        self, version: int, path: str, wanted: Wanted, columns: Sequence[str], in_us: str | None = None
    ) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
        """The rows of a file with these values, and the place of each in the file, from 1 on; some thousand at once.

        The time `in_us` is a number, microseconds UTC: a `datetime` takes Arrow as long as all the rest of a row.

        Raises:
            VersionGone: the file is not there; `version` names it.
        """
        try:
            file = pq.ParquetFile(self._files.open(f"{self._folder}/{path}"))
        except FileNotFoundError as error:
            raise VersionGone(DELIVERIES.name, version, path) from error
        read = list(dict.fromkeys([*columns, *wanted]))
        with file:
            # Threads take longer than the reading where there is little to read.
            threads = file.metadata.num_rows > _MOST_AT_ONCE
            batches = file.iter_batches(batch_size=_MOST_AT_ONCE, columns=read, use_threads=threads)
            # A file that an earlier version wrote lacks the columns that came later.
            for rows in _numbered((typed(DELIVERIES, batch, read) for batch in batches), wanted):
                yield _placed(rows, columns, in_us)

    def rows_in_order(
        self,
        version: int,
        added: Sequence[Mapping[str, Any]],
        wanted: Wanted,
        columns: Sequence[str],
        in_us: str | None = None,
    ) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
        """The same of some files of a version, merged by place: places count the rows of all of them in that order.

        Raises:
            VersionGone: a file is not there; `version` names it.
        """
        for rows in _numbered(merged([self._source(version, data_file(add), wanted) for add in added], ORDER), wanted):
            for start in range(0, rows.num_rows, _MOST_AT_ONCE):
                yield _placed(rows.slice(start, _MOST_AT_ONCE), columns, in_us)

    def _history(self) -> tuple[int, list[DataFile]] | None:
        """The version with which the log begins, and the table as of it; None when the log says all that ever came.

        Raises:
            VersionGone: nobody can say what the table was then.
        """
        while first := oldest(self._files, self._folder):
            try:
                return first, files_at(self._folder, first)
            except VersionGone:
                # Maintenance may have cut the log meanwhile.
                if oldest(self._files, self._folder) == first:
                    raise
        return None

    def _named(self, topic: str | None, subscription: str | None) -> Wanted:
        wanted: dict[str, str | tuple[str, ...]] = {} if subscription is None else {"subscription": subscription}
        if topic is None:
            return wanted
        if topic not in self._topics:
            own = plain_topic(topic)
            self._topics[topic] = tuple(dict.fromkeys([own, *topic_partitions(self.root, own)]))
        names = self._topics[topic]
        return wanted | {"topic": names[0] if len(names) == 1 else names}

    def _commit(self, version: int, log: Actions, wanted: Wanted) -> Iterator[_Ordered]:
        # Where retention took rows out, those that it wrote again are not new.
        files = [data_file(add) for add in appended(log)]
        if not any(each.may_hold(wanted) for each in files):
            return iter(())
        sources = [self._source(version, each, wanted) for each in files]
        return _ordered(version, _numbered(merged(sources, ORDER), wanted))

    def _source(self, version: int, file: DataFile, wanted: Wanted) -> Source:
        """The rows of a file; where none is wanted they are only counted."""
        names = DELIVERIES.columns.names
        if file.may_hold(wanted):
            return self._data.source(file, version, lambda rows: rows, names)
        return self._data.source(file, version, lambda rows: typed(DELIVERIES, rows, names), ORDER)

    def _new(self, rows: Iterable[_Ordered], visible_ms: int | None) -> Iterator[Delivery]:
        """Those that were not given yet by a call before, which ended in the middle of a version."""
        for order, row in rows:
            if order > self._given:
                self._given = order
                yield self._delivery(order, row, visible_ms)

    def _delivery(self, order: tuple[int, int], row: dict[str, Any], visible_ms: int | None) -> Delivery:
        visible = None if visible_ms is None else datetime.fromtimestamp(visible_ms / 1_000, UTC)
        return Delivery(
            topic=row["topic"],
            subscription=row["subscription"],
            position=(row["ledger_id"], row["entry_id"]),
            order=order,
            key=row["message_key"],
            properties=dict(row["properties"] or ()),
            publish_time=row["publish_time"],
            deliver_at=row["deliver_at"],
            visible_at=row["released_at"] if self.virtual else visible,
            due_time=row["due_time"],
            redelivery_count=row["redelivery_count"],
            payload=row["payload"] or b"",
            cause=row["cause"],
        )


def _numbered(pieces: Iterable[pa.Table | pa.RecordBatch], wanted: Wanted = _ALL) -> Iterator[pa.Table]:
    """Rows with these values, with the place of each among all rows, from 1 on."""
    place = 1
    for rows in pieces:
        places = pa.array(range(place, place + rows.num_rows), pa.int64())
        yield _matching(rows.append_column(_PLACE, places), wanted)
        place += rows.num_rows


def _ordered(version: int, pieces: Iterable[pa.Table]) -> Iterator[_Ordered]:
    """Rows that are numbered, each after the version and its place."""
    for rows in pieces:
        for start in range(0, rows.num_rows, _TAKEN_APART):
            some = rows.slice(start, _TAKEN_APART)
            orders = ((version, each) for each in some.column(_PLACE).to_pylist())
            yield from zip(orders, some.drop_columns([_PLACE]).to_pylist(), strict=True)


def _placed(
    rows: pa.Table | pa.RecordBatch, columns: Sequence[str], in_us: str | None
) -> tuple[list[int], list[dict[str, Any]]]:
    """Places of rows, and their columns; a time is microseconds UTC."""
    arrays = [rows.column(name).cast(pa.int64()) if name == in_us else rows.column(name) for name in columns]
    return rows.column(_PLACE).to_pylist(), pa.Table.from_arrays(
        [pa.chunked_array(each) if isinstance(each, pa.Array) else each for each in arrays], list(columns)
    ).to_pylist()


def _matching(rows: pa.Table | pa.RecordBatch, wanted: Wanted) -> pa.Table | pa.RecordBatch:
    for column, value in wanted.items():
        is_wanted = pc.is_in if isinstance(value, tuple) else pc.equal
        rows = rows.filter(is_wanted(rows.column(column), pa.array(value) if isinstance(value, tuple) else value))
    return rows

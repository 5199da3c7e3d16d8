"""Dead letters: messages that failed too often are appended to the inbox again, under a topic of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.routes import NotInDriver
from pipeline.delta.deltars import append, open_table
from pipeline.delta.logs.entries import commits, newest
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.messagelog import Bounds, MessageLog
from pipeline.delta.reading.messages import message_groups
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.core.listener import Listener
from pipeline.settle.sent import CAUSE, Sent, letters_behind
from pipeline.storage.arrays import arrow_schema, longs, ordered
from pipeline.storage.gather import TEXTS, Gathered, cuts
from pipeline.subscriptions.letters import APPLICATION, batch_of, transaction
from schemas import INBOX, MESSAGES
from state.positions import Positions
from state.settling import DeadLetter

_PLACE = ("topic", "ledger_id", "entry_id")
_PIECE_BYTES, _ROW_BYTES = 64 << 20, 1_024
"""What is appended at once, and what a row takes beside its texts. They stay: who repeats a batch cuts it alike."""
_MOST_PLACES, _MOST_ROWS = 1 << 18, 1 << 16
"""Messages that are looked for at once, but for those of one ledger, and that are taken from Arrow at once."""
Letter = tuple[Listener, DeadLetter]


class DeadLetters:
    """Looks up the messages of dead letters, and appends them once.

    Attributes:
        appended: how many are in `inbox` by now, of all batches since the start.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._warehouse, self._log, self._path = warehouse, MessageLog(warehouse), warehouse.path(INBOX)
        self._files = warehouse.files
        self._root = self._files.readable(warehouse.root)
        self.appended = 0

    def append(
        self, letters: Sequence[Letter], batch: int, drawn: int, done: int | None = None
    ) -> list[tuple[Listener, Positions]]:
        """Append the letters of a batch to `inbox`, unless that was done; each piece of them is a version.

        Who repeats a batch appends the same pieces: letters go by subscription, and those of one are in the order that
        they are given in.

        Args:
            letters: of the batch.
            batch: its number.
            drawn: what its plan says was drawn for them.
            done: the last batch that is finished; letters of later ones are not given once more. None: there are none.

        Returns:
            The positions whose messages are not in the log any more.
        """
        missing: list[tuple[Listener, Positions]] = []
        in_order = sorted(letters, key=_incarnation)
        name, number = transaction(batch, drawn)
        sent = Sent(() if done is None else self._behind(done))
        for piece, every in enumerate(_pieces(self._rows(in_order, missing))):
            # Cut first, and looked through then: whoever repeats the batch cuts alike.
            rows = sent.without(every)
            if rows.num_rows:
                self._put(rows, f"{name}-{piece}" if piece else name, number)
                self.appended += rows.num_rows
        return missing

    def _behind(self, done: int) -> Iterator[Counter[bytes]]:
        """Letters of batches behind one. A look at what was noted last, mostly: there are none."""
        last = self._noted(APPLICATION)
        if last is not None and batch_of(last) > done:
            yield from letters_behind(self._warehouse, done)

    def _noted(self, name: str) -> int | None:
        """The number that was noted last under a name."""
        if self._root is not None:
            return open_table(self._root, INBOX).transaction_version(name)
        return TableLog(self._warehouse.session, self._path).transaction(name)

    def _put(self, rows: pa.Table, name: str, number: int) -> None:
        """Append rows by one version, unless that was done under this name and number already.

        Delta notes the number beside the rows, and keeps that when the log is cut. delta-rs appends where it reaches
        the table, as producers do; elsewhere Spark does.
        """
        if self._root is not None:
            append(self._root, INBOX, rows, once=(name, number), drawn=True)
            return
        free = self._free(name, number)
        while free is not None:
            before = newest(self._files, self._path)
            options = {"txnAppId": free, "txnVersion": str(number)}
            frame = self._warehouse.spark.createDataFrame(rows, INBOX.schema)
            frame.coalesce(1).write.format("delta").mode("append").options(**options).save(self._path)
            # Somebody else may have noted a higher number under this name meanwhile. Then Spark wrote nothing.
            free = None if self._is_noted(free, number, before) else self._free(name, number)

    def _is_noted(self, name: str, number: int, after: int) -> bool:
        """Whether a version behind one has a number under a name."""
        version = newest(self._files, self._path, after)
        since = islice(commits(self._files, self._path, version), version - after)
        transactions = (each["txn"] for actions in since for each in actions if "txn" in each)
        return any((each.get("appId"), each.get("version")) == (name, number) for each in transactions)

    def _free(self, name: str, number: int) -> str | None:
        """A name under which Spark appends rows of a number; None: they were appended.

        Spark leaves out what has a number that is not higher than the last one, whoever noted that.
        """
        log = TableLog(self._warehouse.session, self._path)
        for each in (name if not again else f"{name}+{again}" for again in count()):
            last = log.transaction(each)
            if last == number:
                return None
            if last is None or last < number:
                return each
        raise AssertionError  # pragma: no cover - names do not end

    def _rows(self, letters: Sequence[Letter], missing: list[tuple[Listener, Positions]]) -> Iterator[dict[str, Any]]:
        """Rows of `inbox`, one at a time; what has no message is told beside them."""
        for listener, letter in letters:
            for wanted in _slices(letter.positions):
                for message in self._messages(listener.name[0], wanted):
                    wanted[message["ledger_id"]].discard(message["entry_id"])
                    yield _row(listener, letter, message)
                left = [(ledger, entries) for ledger, entries in wanted.items() if entries]
                if left:
                    missing.append((listener, Positions.gathered(left)))

    def _messages(self, topic: str, wanted: Mapping[int, BitMap]) -> Iterator[dict[str, Any]]:
        """The messages at some positions, in their order, one at a time."""
        bounds = Bounds(min(wanted), max(wanted))
        try:
            found = self._gathered(topic, bounds, wanted)
        except NotInDriver:
            rows = self._log.read([bounds]).where(bounds.inside & (F.col("topic") == topic)).select(*_PLACE, *TEXTS)
            for row in rows.orderBy(*_PLACE).toLocalIterator():
                if row["entry_id"] in wanted.get(row["ledger_id"], ()):
                    yield row.asDict()
            return
        order = ordered([longs(found.rows, name) for name in _PLACE[1:]])
        for first, last in cuts(found.texts.sizes[order], _MOST_ROWS):
            some = order[first:last]
            places = found.rows.select(_PLACE).take(pa.array(some))
            yield from pa.Table.from_arrays(
                [*places.columns, *found.texts.take(some).columns], names=[*_PLACE, *TEXTS]
            ).to_pylist()

    def _gathered(self, topic: str, bounds: Bounds, wanted: Mapping[int, BitMap]) -> Gathered:
        """The same in any order. Texts that are many stay in their files.

        Raises:
            NotInDriver: only Spark reads them, or they are too many.
        """
        groups = ((group, _chosen(group.read(_PLACE), topic, wanted)) for group in message_groups(self._log, bounds))
        return Gathered.read(MESSAGES, ((group, numbers) for group, numbers in groups if len(numbers)), _PIECE_BYTES)


def _incarnation(letter: Letter) -> tuple[str, str, int]:
    return letter[0].incarnation


def _slices(positions: Positions) -> Iterator[dict[int, BitMap]]:
    """The entries of each ledger, ascending, some ledgers at a time."""
    piece, size = dict[int, BitMap](), 0
    for ledger, entries in positions.by_ledger():
        if piece and size + len(entries) > _MOST_PLACES:
            yield piece
            piece, size = {}, 0
        piece[ledger] = entries
        size += len(entries)
    if piece:
        yield piece


def _pieces(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    """Rows of `inbox` in pieces that may be held."""
    piece: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += _ROW_BYTES + len(row["payload"] or b"") + sum(len(value or "") for _, value in row["properties"])
        if size >= _PIECE_BYTES:
            yield pa.Table.from_pylist(piece, schema=arrow_schema(INBOX.schema))
            piece, size = [], 0
    if piece:
        yield pa.Table.from_pylist(piece, schema=arrow_schema(INBOX.schema))


def _chosen(rows: pa.Table, topic: str, wanted: Mapping[int, BitMap]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of the rows at some positions of a topic."""
    ledgers, entries = longs(rows, "ledger_id"), longs(rows, "entry_id")
    topics = rows.column("topic").to_pylist() if len(ledgers) else []
    near = np.flatnonzero(np.isin(ledgers, np.fromiter(wanted, np.int64)))
    found = [n for n in near.tolist() if topics[n] == topic and int(entries[n]) in wanted[int(ledgers[n])]]
    return np.array(found, np.int64)


def _row(listener: Listener, letter: DeadLetter, message: dict[str, Any]) -> dict[str, object]:
    """A row of `inbox`: the message, and in its properties where it comes from and why."""
    topic, subscription = listener.name
    origin = {
        "delayline.topic": topic,
        "delayline.subscription": subscription,
        "delayline.position": f"{message['ledger_id']}:{message['entry_id']}",
        "delayline.redelivery_count": str(letter.redelivery_count),
        CAUSE: letter.reason,
    }
    properties = dict(message["properties"] or {}) | origin
    return {
        "topic": listener.policies.dead_letters(topic, subscription),
        "message_key": message["message_key"],
        "properties": list(properties.items()),
        "payload": message["payload"],
    }

"""Dead letters: messages that failed too often are appended to the inbox again, under a topic of their own.

Some may be in `inbox` of batches that settle does not know of: it gives these letters once more. That is so in a copy
that was made while it ran, and when a batch dies and the checkpoint is lost. Whoever appends to `inbox` may note any
number, and write any row. So a row there stands for a letter only when it is the same in all but the cause: then
nothing is lost, whoever wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count, islice
from typing import Any

import pyarrow as pa

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.lazyspark import F
from pipeline.config.routes import NotInDriver
from pipeline.delta.deltars import append, open_table
from pipeline.delta.logs.entries import appended, commits, newest
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.files import read_files
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.reading.strangers import broken, left_out, unfolding
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.core.listener import Listener
from pipeline.settle.lookup import PIECE_BYTES, PLACE, Wanted, bounds_of, gathered, slices
from pipeline.storage.arrays import arrow_schema, longs, ordered
from pipeline.storage.gather import TEXTS, cuts
from pipeline.storage.parquet import MOST_UNFOLDED, row_groups
from pipeline.subscriptions.letters import APPLICATION, batch_of, transaction
from schemas import INBOX
from state.positions import Positions
from state.settling import DeadLetter

CAUSE = "delayline.cause"
"""The property that may be another one when a letter is given once more."""
_ROWS = 1 << 10
"""Rows that are held at once."""
_OF_AN_APPEND = {"commitInfo", "txn", "add"}
_TEXTS = pa.map_(pa.binary(), pa.binary())


class Sent:
    """The letters that are there; each stands for one."""

    def __init__(self, files: Iterable[Counter[bytes]]) -> None:
        """Take what files of `inbox` have, by the digests of their rows."""
        self._there = Counter[bytes]()
        for each in files:
            self._there += each

    def without(self, letters: pa.Table) -> pa.Table:
        """Letters less those that are there."""
        if not self._there:
            return letters
        return letters.filter(pa.array([not self._takes(row) for row in _each(letters)], pa.bool_()))

    def _takes(self, row: Mapping[str, Any]) -> bool:
        digest = _digest(row)
        if not self._there[digest]:
            return False
        self._there[digest] -= 1
        return True


def letters_behind(warehouse: Warehouse, done: int) -> Iterator[Counter[bytes]]:
    """What files of `inbox` have that were noted as letters of batches behind one, as far as its log reaches.

    Args:
        warehouse: where the table lies.
        done: the last batch that settle knows of.
    """
    files, path = warehouse.files, warehouse.path(INBOX)
    version = newest(files, path)
    for place, actions in enumerate(commits(files, path, version)):
        noted = [each["txn"] for each in actions if "txn" in each]
        batches = [batch_of(each["version"]) for each in noted if _is_ours(each)]
        if batches and max(batches) <= done:
            return
        # What ingest takes from any other version is not for us to say.
        if batches and set().union(*actions) <= _OF_AN_APPEND:
            for each in appended(actions):
                yield _digests(warehouse, {**each, "version": version - place})


def _digests(warehouse: Warehouse, added: Mapping[str, Any]) -> Counter[bytes]:
    """Digests of the rows of a file; none of one that ingest does not take. A payload may be as long as it likes."""
    files, path = warehouse.files, warehouse.path(INBOX)
    if left_out(files, path, [added]) or unfolding(files, path, INBOX, [added], MOST_UNFOLDED):
        return Counter()
    try:
        groups = row_groups(INBOX, [f"{files.readable(path) or path}/{added['path']}"])
        return Counter(_digest(row) for group in groups for rows in group.all() for row in _each(rows))
    except (NotInDriver, OSError, pa.ArrowException):
        if broken(files, path, INBOX, [added]):
            return Counter()
        return Counter(map(_digest, _each(read_files(warehouse, INBOX, [added["path"]]))))


def _is_ours(noted: Mapping[str, Any]) -> bool:
    return str(noted.get("appId")).startswith(APPLICATION) and isinstance(noted.get("version"), int)


def _each(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows by their bytes: texts of strangers may be no UTF-8, and their times none that Python knows."""
    for first in range(0, rows.num_rows, _ROWS):
        yield from rows.slice(first, _ROWS).cast(_PLAIN).to_pylist()


def _plain(field: pa.Field) -> pa.Field:
    kind = pa.int64() if pa.types.is_timestamp(field.type) else pa.binary() if pa.types.is_string(field.type) else None
    return field.with_type(_TEXTS if pa.types.is_map(field.type) else kind or field.type)


_PLAIN = pa.schema([_plain(field) for field in arrow_schema(INBOX.columns)])
_CAUSE = CAUSE.encode()


def _digest(row: Mapping[str, Any]) -> bytes:
    """What is the same for two rows that are the same in all but the cause."""
    properties = sorted(map(repr, (each for each in row["properties"] or () if each[0] != _CAUSE)))
    values = [(name, properties if name == "properties" else row[name]) for name in sorted(row)]
    return blake2b(repr(values).encode(), digest_size=16).digest()


_ROW_BYTES = 1_024
"""What a row takes beside its texts. So much, and `PIECE_BYTES` at once: who repeats a batch cuts it alike."""
_MOST_ROWS = 1 << 16
"""Messages that are taken from Arrow at once."""
Letter = tuple[Listener, DeadLetter]


class DeadLetters:
    """Looks up the messages of dead letters, and appends them once.

    Attributes:
        appended: how many are in `inbox` by now, of all batches since the start.
    """

    def __init__(self, warehouse: Warehouse) -> None:
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
            frame = arrow_frame(self._warehouse.spark, rows, INBOX.schema)
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
            for wanted in slices(letter.positions):
                for message in self._messages(listener.name[0], wanted):
                    wanted[message["ledger_id"]].discard(message["entry_id"])
                    yield _row(listener, letter, message)
                left = [(ledger, entries) for ledger, entries in wanted.items() if entries]
                if left:
                    missing.append((listener, Positions.gathered(left)))

    def _messages(self, topic: str, wanted: Wanted) -> Iterator[dict[str, Any]]:
        """The messages at some positions, in their order, one at a time."""
        try:
            found = gathered(self._log, topic, wanted)
        except NotInDriver:
            bounds = bounds_of(wanted)
            rows = self._log.read([bounds]).where(bounds.inside & (F.col("topic") == topic)).select(*PLACE, *TEXTS)
            for row in rows.orderBy(*PLACE).toLocalIterator():
                if row["entry_id"] in wanted.get(row["ledger_id"], ()):
                    yield row.asDict()
            return
        order = ordered([longs(found.rows, name) for name in PLACE[1:]])
        for first, last in cuts(found.texts.sizes[order], _MOST_ROWS):
            some = order[first:last]
            places = found.rows.select(PLACE).take(pa.array(some))
            yield from pa.Table.from_arrays(
                [*places.columns, *found.texts.take(some).columns], names=[*PLACE, *TEXTS]
            ).to_pylist()


def _incarnation(letter: Letter) -> tuple[str, str, int]:
    return letter[0].incarnation


def _pieces(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    """Rows of `inbox` in pieces that may be held."""
    piece: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += _ROW_BYTES + len(row["payload"] or b"") + sum(len(value or "") for _, value in row["properties"])
        if size >= PIECE_BYTES:
            yield pa.Table.from_pylist(piece, schema=arrow_schema(INBOX.columns))
            piece, size = [], 0
    if piece:
        yield pa.Table.from_pylist(piece, schema=arrow_schema(INBOX.columns))


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

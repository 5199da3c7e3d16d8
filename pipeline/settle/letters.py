"""Dead letters: messages that failed too often are appended to the inbox again, under a topic of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql import SparkSession

from pipeline.config.routes import NotInDriver
from pipeline.delta.deltars import append
from pipeline.delta.reading.messagelog import Bounds, MessageLog
from pipeline.delta.reading.messages import message_groups
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.listener import Listener
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.storage.hadoop import session_files
from schemas import INBOX
from state.positions import Positions
from state.settling import DeadLetter

APPLICATION = "delayline-settle"
"""The name under which Delta keeps which batch appended dead letters last (`txn`)."""
_PLACE = ("topic", "ledger_id", "entry_id")
_COPIED = (*_PLACE, "message_key", "properties", "payload")
Letter = tuple[Listener, DeadLetter]


class DeadLetters:
    """Looks up the messages of dead letters, and appends them once."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._log, self._path = spark, MessageLog(spark, warehouse), warehouse.path(INBOX)
        self._root = session_files(spark).readable(warehouse.root)

    def rows(self, letters: Sequence[Letter]) -> tuple[pa.Table, list[tuple[Listener, Positions]]]:
        """Rows of `inbox`, and the positions whose messages are not in the log any more."""
        rows: list[dict[str, object]] = []
        missing: list[tuple[Listener, Positions]] = []
        for listener, letter in letters:
            wanted = dict(letter.positions.by_ledger())
            for message in self._messages(listener.name[0], wanted):
                wanted[message["ledger_id"]].discard(message["entry_id"])
                rows.append(_row(listener, letter, message))
            left = [(ledger, entries) for ledger, entries in wanted.items() if entries]
            if left:
                missing.append((listener, Positions.gathered(left)))
        return pa.Table.from_pylist(rows, schema=arrow_schema(INBOX.schema)), missing

    def append(self, rows: pa.Table, batch: int) -> None:
        """Append the rows of a batch by one version, unless that was done.

        Delta notes the batch beside the rows, and keeps that when the log is cut. delta-rs appends where it reaches the
        table, as producers do; elsewhere Spark does.
        """
        if self._root is not None:
            append(self._root, INBOX, rows, once=(APPLICATION, batch))
        else:
            options = {"txnAppId": APPLICATION, "txnVersion": str(batch)}
            frame = self._spark.createDataFrame(rows, INBOX.schema)
            frame.coalesce(1).write.format("delta").mode("append").options(**options).save(self._path)

    def _messages(self, topic: str, wanted: dict[int, BitMap]) -> Iterator[dict[str, Any]]:
        """The messages at some positions, in their order, one at a time."""
        bounds = Bounds(min(wanted), max(wanted))
        for table in self._found(topic, bounds, wanted):
            yield from table.sort_by([("ledger_id", "ascending"), ("entry_id", "ascending")]).to_pylist()

    def _found(self, topic: str, bounds: Bounds, wanted: dict[int, BitMap]) -> list[pa.Table]:
        try:
            return self._local(topic, bounds, wanted)
        except NotInDriver:
            rows = self._log.read([bounds]).where(bounds.inside).select(*_COPIED).toArrow()
            return [rows.take(pa.array(_chosen(rows, topic, wanted)))]

    def _local(self, topic: str, bounds: Bounds, wanted: dict[int, BitMap]) -> list[pa.Table]:
        found = []
        for group in message_groups(self._log, bounds):
            numbers = _chosen(group.read(_PLACE), topic, wanted)
            found += [] if not len(numbers) else list(group.take(_COPIED, numbers))
        return found


def _chosen(rows: pa.Table, topic: str, wanted: dict[int, BitMap]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of the rows at some positions of a topic."""
    ledgers, entries = longs(rows, "ledger_id"), longs(rows, "entry_id")
    topics = rows.column("topic").to_pylist() if len(ledgers) else []
    near = np.flatnonzero(np.isin(ledgers, np.fromiter(wanted, np.int64)))
    found = [n for n in near.tolist() if topics[n] == topic and int(entries[n]) in wanted[int(ledgers[n])]]
    return np.array(found, np.int64)


def _row(listener: Listener, letter: DeadLetter, message: dict[str, Any]) -> dict[str, object]:
    """A row of `inbox`: the message, and in its properties where it comes from and why."""
    topic, subscription = listener.name
    told = {
        "delayline.topic": topic,
        "delayline.subscription": subscription,
        "delayline.position": f"{message['ledger_id']}:{message['entry_id']}",
        "delayline.redelivery_count": str(letter.redelivery_count),
        "delayline.cause": letter.reason,
    }
    properties = dict(message["properties"] or {}) | told
    return {
        "topic": listener.policies.dead_letters(topic, subscription),
        "message_key": message["message_key"],
        "properties": list(properties.items()),
        "payload": message["payload"],
    }

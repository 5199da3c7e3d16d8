"""Whose turn messages of runs wait for: looked up in `messages`, without payloads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.config.routes import NotInDriver
from pipeline.config.settings import Settings
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch import release_spark
from pipeline.dispatch.release import ENTRY_BITS, taken_apart, window_of
from pipeline.dispatch.release_local import hits, matched
from pipeline.storage.arrays import IntArray, longs
from pipeline.storage.gather import first_items
from pipeline.subscriptions.fairness import NOBODY, FairRule, numbers_of


class Values:
    """Looks values up."""

    def __init__(self, warehouse: Warehouse, log: MessageLog, settings: Settings) -> None:
        self._warehouse, self._log, self._settings = warehouse, log, settings

    def of(self, runs: pa.Table, rule: FairRule) -> tuple[IntArray, IntArray, IntArray]:
        """For each position of some runs, at least one: the number of its run, its entry, the number of its value.

        A position without a message is nobody's.
        """
        run, entry = taken_apart(runs, int((longs(runs, "last_entry") - longs(runs, "first_entry") + 1).sum()))
        ledgers, place = np.unique(longs(runs, "ledger_id"), return_inverse=True)
        wanted, value = (place.reshape(-1)[run] << ENTRY_BITS) | entry, np.full(len(run), NOBODY)
        try:
            keys, numbers = self._here(runs, rule, ledgers, wanted)
        except (NotInDriver, pa.ArrowException):
            keys, numbers = self._by_spark(runs, rule, ledgers)
        found, message = matched(wanted, keys)
        value[found] = numbers[message]
        return run, entry, value

    def _here(self, runs: pa.Table, rule: FairRule, ledgers: IntArray, wanted: IntArray) -> tuple[IntArray, IntArray]:
        """Ledger and entry of messages as one number, as in `wanted`, and the numbers of their values.

        Raises:
            NotInDriver: only Spark reaches them.
        """
        if not self._settings.driver_rows:
            raise NotInDriver
        keys, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group, rows, key in hits(self._log, window_of(runs).bounds, ledgers, np.sort(wanted)):
            keys.append(key)
            numbers += [_numbers(piece, rule) for piece in group.take([rule.column], rows)]
        return np.concatenate(keys), np.concatenate(numbers)

    def _by_spark(self, runs: pa.Table, rule: FairRule, ledgers: IntArray) -> tuple[IntArray, IntArray]:
        found = release_spark.looked_up(self._warehouse.spark, runs, self._log, ("run", "entry_id", rule.column))
        ledger = longs(runs, "ledger_id")[longs(found, "run")]
        keys = (np.searchsorted(ledgers, ledger) << ENTRY_BITS) | longs(found, "entry_id")
        return keys, _numbers(found, rule)


def _numbers(messages: pa.Table, rule: FairRule) -> IntArray:
    """The numbers of the values of messages."""
    texts = messages.column(rule.column)
    parts = [each if rule.property_name is None else first_items(each, rule.property_name) for each in texts.chunks]
    return np.concatenate([np.empty(0, np.int64), *map(numbers_of, parts)])

"""How far an import is: positions of the topic as numbers, and a file that says what each commit has left."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.brokers.pulsar import Position
from pipeline.config.errors import BadValue, StageRunning
from pipeline.delta.deltars import NumberTaken, append, open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.sourcenotes import IMPORTS, check_planned
from schemas import INBOX

_TOPIC = re.compile(r"[^/]+/[^/]+/[^/]+")
_SERVICE = re.compile(r"pulsar(\+ssl)?://[^/@?#]+")
_LEAST_MARGIN_MS = 5_000
"""A commit and its acknowledgements take less."""
_ENTRY_BITS = 28
_MOST_ENTRY, _MOST_LEDGER = (1 << _ENTRY_BITS) - 1, (1 << 63 - _ENTRY_BITS) - 1


@dataclass(frozen=True)
class Wanted:
    """What to take from where. The name of an import is made of all of it but the last two and `admin`.

    Attributes:
        service: the cluster, `pulsar://HOST:PORT`.
        admin: its REST interface, `http://HOST:PORT`.
        topic: `TENANT/NAMESPACE/TOPIC`.
        subscription: what it has acknowledged is not taken.
        to: the topic of the warehouse.
        margin_ms: what will be due within that time stays with Pulsar.
        acknowledge: acknowledge there what was taken, so that it is not delivered there too.
    """

    service: str
    admin: str
    topic: str
    subscription: str
    to: str
    margin_ms: int
    acknowledge: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no topic, or no time."""
        if not _TOPIC.fullmatch(self.topic):
            raise BadValue("topic", self.topic, "TENANT/NAMESPACE/TOPIC")
        if not _SERVICE.fullmatch(self.service):
            raise BadValue("service", "an address", "pulsar://HOST:PORT or pulsar+ssl://HOST:PORT, without a user")
        if not self.margin_ms >= _LEAST_MARGIN_MS:
            raise BadValue("margin", self.margin_ms, f"{_LEAST_MARGIN_MS} ms or more")


def sequence(at: Position) -> int:
    """A position as a number, in the order of positions.

    Raises:
        BadValue: no 63 bits hold it.
    """
    ledger, entry = at
    if not 0 <= entry <= _MOST_ENTRY or not 0 <= ledger <= _MOST_LEDGER:
        raise BadValue("position", f"{ledger}:{entry}", f"up to {_MOST_LEDGER}:{_MOST_ENTRY}")
    return ledger << _ENTRY_BITS | entry


def position_of(number: int) -> Position:
    """The position that a number stands for."""
    return number >> _ENTRY_BITS, number & _MOST_ENTRY


class ImportPlace:
    """An import of one topic without partitions, or of one partition.

    Attributes:
        name: of the import, in the log of `inbox`.
        folder: where its file and its lock are.
        partition: what is read.
        last: the number of the last message of the last commit; -1: nothing was committed.
    """

    def __init__(self, root: str, wanted: Wanted, partition: str) -> None:
        """Read what earlier runs have noted.

        Raises:
            NoWarehouse: the folder has no inbox.
            NotedByOthers: the number in the log of `inbox` is none that this import has planned.
        """
        text = json.dumps([wanted.service, partition, wanted.subscription, wanted.to])
        self.name = f"import-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        self.folder, self.partition, self._root = f"{root}/{IMPORTS}", partition, root
        done = open_table(root, INBOX).transaction_version(self.name)
        self.last = -1 if done is None else done
        self._files, self._path = Files(), f"{self.folder}/{self.name}.json"
        noted: list[list[int]] = json.loads(self._files.text_if_there(self._path) or "[]")
        check_planned(self.name, noted, done)
        # A commit that was planned and did not come is planned anew.
        self._commits = [each for each in noted if each[0] <= self.last]

    def commit(self, rows: pa.Table, last: int, soon_ms: int, left: Sequence[int] = ()) -> None:
        """Append messages to `inbox` by one commit.

        In a store no lock keeps a second import of the topic out. The one that commits second takes nothing: its plan
        goes, and that of the other one, which it may have replaced, is put back.

        Args:
            rows: of the inbox.
            last: the number with which the commit ends.
            soon_ms: the due time up to which it leaves messages.
            left: the numbers of later ones that it leaves, too.

        Raises:
            StageRunning: another import of the same topic has committed since this one has looked.
        """
        before = self._files.text_if_there(self._path)
        self.plan(last, soon_ms, left)
        try:
            append(self._root, INBOX, rows, once=(self.name, last), behind=self.last)
        except NumberTaken as error:
            if before is not None and self._files.text_if_there(self._path) == self._text:
                self._files.write(self._path, before)
            raise StageRunning(self.name, "another process has committed") from error
        self.last = last
        if self._files.text_if_there(self._path) != self._text:
            self._files.write(self._path, self._text)

    def plan(self, last: int, soon_ms: int, left: Sequence[int] = ()) -> None:
        """Note, before a commit, which number it ends with, and what it leaves, by due time and by number."""
        self._commits.append([last, soon_ms, *left])
        self._files.write(self._path, self._text)

    @property
    def _text(self) -> str:
        return json.dumps(self._commits)

    def took(self, number: int, due_ms: int) -> bool:
        """Whether a message of an earlier commit was taken, by its due time."""
        index = bisect_left(self._commits, number, key=lambda each: each[0])
        if index == len(self._commits):
            return False
        _, soon_ms, *left = self._commits[index]
        return due_ms > soon_ms and number not in left

"""Appends to `inbox` what the producers of a client have to send: one commit each turn.

While a turn is written the next one gathers, so many messages share few commits. A turn is repeated until it is known
to be in the log, or its time is over. That it is there, though the answer was lost, is seen by a mark in the commit.
Producers with a name note their last sequence id in the commit, too, as an application transaction of Delta: so what
they send again, after whatever crash, is left out.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from math import inf

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pipeline.client.exceptions import InvalidMessage, ProducerBusy, Timeout
from pipeline.client.producing.queue import Queue
from pipeline.client.producing.rows import Entry, Sender, inbox_rows
from pipeline.config.errors import PipelineError
from pipeline.delta.deltars import LOG_STAYS, fitted, open_table, path_of
from pipeline.delta.logs.entries import entry, info_of
from pipeline.storage.files import Files
from pipeline.storage.room import check_room
from schemas import INBOX

MARK = "delayline.turn"
"""The name in a commit under which a turn of a writer is known."""
_RETRIES = 15


class Inbox:
    """Appends, and looks whether an append is in the log though its answer was lost."""

    def __init__(self, root: str) -> None:
        self._root, self._files = root, Files()
        self._table: DeltaTable | None = None

    def stored(self, transaction: str) -> int:
        """The last version of an application transaction; -1 when there is none."""
        found = self._open().transaction_version(transaction)
        return -1 if found is None else found

    def append(self, rows: pa.Table, mark: str, transactions: Mapping[str, int]) -> None:
        """Append rows in one commit.

        Args:
            rows: in the columns of the contract.
            mark: by which `landed` finds the commit.
            transactions: versions of application transactions. When another commit has told of one of them since the
                table was opened, this one fails.

        Raises:
            ColumnGone: the table lacks a column of the rows.
            OSError: nothing can be written to the disk; asked first, since delta-rs prints a panic of its own.
        """
        table = self._open()
        if (here := self._files.local(path_of(self._root, INBOX))) is not None:
            check_room(here)
        properties = CommitProperties(
            custom_metadata={MARK: mark},
            max_commit_retries=_RETRIES,
            app_transactions=[Transaction(name, version) for name, version in transactions.items()],
        )
        rows = fitted(table, INBOX, rows)
        write_deltalake(table, rows, mode="append", commit_properties=properties, post_commithook_properties=LOG_STAYS)

    def reopened_unless(self, mark: str) -> bool:
        """Whether a version since the last append has a mark; when none has, the table is opened anew."""
        if self._table is not None:
            version, folder = self._table.version(), path_of(self._root, INBOX)
            while (actions := entry(self._files, folder, version)) is not None:
                if info_of(actions).get(MARK) == mark:
                    return True
                version += 1
            self._table = None
        self._open()
        return False

    def _open(self) -> DeltaTable:
        if self._table is None:
            self._table = open_table(self._root, INBOX)
        return self._table


_LOG = logging.getLogger(__name__)


class Stats:
    """Counts turns, and tells when its interval is over."""

    def __init__(self, interval_s: float) -> None:
        """Begin to count; an interval of 0 never ends."""
        self._interval_s, self._begun, self._slowest_s = interval_s, time.monotonic(), 0.0
        self._turns = self._messages = self._bytes = 0

    def turn(self, entries: Sequence[Entry], took_s: float) -> None:
        """Count a turn that has ended."""
        self._turns += 1
        self._messages += len(entries)
        self._bytes += sum(each.content.size for each in entries)
        self._slowest_s = max(self._slowest_s, took_s)
        passed_s = time.monotonic() - self._begun
        if self._interval_s and passed_s >= self._interval_s:
            _LOG.info(
                "sent %d messages (%.1f a second) of %d bytes in %d commits, the slowest in %.0f ms",
                *(self._messages, self._messages / passed_s, self._bytes, self._turns, self._slowest_s * 1_000),
            )
            self._begun, self._slowest_s = time.monotonic(), 0.0
            self._turns = self._messages = self._bytes = 0


_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_NO_ROW = (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError)
"""What is raised where no row can be made of a message."""
_HELD_TURNS = 100
"""So many commits use the table as it was opened. Each costs a little more than the last, since delta-rs takes no
checkpoint of the log into what it holds: after 500 of them 50 ms instead of 10."""


class Writer:
    """Writes what its queue has, turn by turn, and tells of each message what became of it.

    Attributes:
        queue: where from.
    """

    def __init__(self, root: str, most_bytes: int = 0, stats_s: float = 0) -> None:
        """Begin with nothing; the first message starts a thread.

        Args:
            root: the warehouse.
            most_bytes: of payloads that may wait; 0: any number.
            stats_s: so often the log gets a line with figures; 0: never.
        """
        self.queue = Queue(self.write, most_bytes)
        self._root, self._inbox, self._stats = root, Inbox(root), Stats(stats_s)
        self._unsure, self._turns = False, 0

    def stored(self, sender: Sender) -> int:
        """The last number that the log has of a producer; -1: none. Looks at the table anew."""
        return Inbox(self._root).stored(sender.transaction)

    def write(self, turn: Sequence[Entry]) -> None:
        """Write a turn, and do not come back before all of it is decided."""
        for part in _parts(turn):
            self._write(part)

    def _write(self, turn: Sequence[Entry]) -> None:
        """Write what may go in one commit."""
        self._turns += 1
        self._unsure = self._unsure or self._turns % _HELD_TURNS == 0
        mark, pause_s, begun = secrets.token_hex(8), _PAUSE_S, time.monotonic()
        entries = turn
        while entries:
            try:
                if not self._landed(mark):
                    # Somebody else may have sent under a name since its producer was made.
                    entries = self._without_stored(entries)
                    self._append(entries, mark)
            except PipelineError as error:
                self.queue.failed(entries, error)
                return
            except Exception as error:  # noqa: BLE001 - delta-rs and the store raise many kinds; all of them may pass
                self._unsure = True
                if isinstance(error, _NO_ROW) and len(left := self._without_refused(entries)) < len(entries):
                    entries = left
                    continue
                entries = self._without_late(entries, error, pause_s)
                time.sleep(pause_s if entries else 0)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except BaseException:
                # A panic of delta-rs: the table as it was opened may be of no use any more.
                self._unsure = True
                raise
            else:
                self._unsure = False
                self.queue.sent(entries, [each.message_id for each in entries])
                break
        self._stats.turn(turn, time.monotonic() - begun)

    def _landed(self, mark: str) -> bool:
        """Whether a commit of which the answer was lost is in the log."""
        return self._unsure and self._inbox.reopened_unless(mark)

    def _append(self, entries: Sequence[Entry], mark: str) -> None:
        new = [each for each in entries if not each.repeated]
        if not new:
            return
        last = {each.sender: each.sequence_id for each in new if each.sender.named}
        numbers = {sender.transaction: number for sender, number in last.items()}
        self._inbox.append(inbox_rows(new), mark, numbers)

    def _without_stored(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Those that are not in the log already, by another process or by one of ours that ended.

        A number that the caller gave says that it is the same message; one that was counted, that somebody else counts.
        """
        named = {each.sender for each in entries if each.sender.named}
        if not named:
            return entries
        stored = {each: self._inbox.stored(each.transaction) for each in named}
        for sender, number in stored.items():
            self.queue.known(sender, number)
        known = [each for each in entries if each.sequence_id <= stored.get(each.sender, -1)]
        busy = {each.sender for each in known if not (each.stated or each.repeated)}
        for sender in busy:
            error = ProducerBusy(sender.topic, sender.name, stored[sender])
            self.queue.failed([each for each in entries if each.sender is sender], error)
        same = [each for each in known if each.sender not in busy]
        self.queue.sent(same, [each._replace(repeated=True).message_id for each in same])
        left = (each for each in entries if each.sender not in busy)
        return [each for each in left if each.sequence_id > stored.get(each.sender, -1)]

    def _without_refused(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Those of which rows can be made; of a producer only those before the first of which none can.

        What Arrow refuses it refuses each time, and all others would wait for it.
        """
        refusals, left = dict[Sender, InvalidMessage](), list[Entry]()
        for each in entries:
            refusal = None if each.sender in refusals else _refusal(each)
            if refusal is not None:
                refusals[each.sender] = refusal
            if each.sender not in refusals:
                left.append(each)
        kept = set(map(id, left))
        for sender, refusal in refusals.items():
            self.queue.failed([each for each in entries if each.sender is sender and id(each) not in kept], refusal)
        return left

    def _without_late(self, entries: Sequence[Entry], error: Exception, pause_s: float) -> Sequence[Entry]:
        """Those that may be tried again after a pause; none of a producer whose first one may not."""
        now = time.monotonic() + pause_s
        late: dict[Sender, float] = {}
        for each in entries:
            if each.queued + (each.sender.timeout_s or inf) <= now:
                late[each.sender] = each.sender.timeout_s
        for sender, allowed_s in late.items():
            why = str(error).partition("\n")[0]
            timeout = Timeout(f"sending of producer {sender.name!r}", allowed_s * 1_000, f": {why}")
            timeout.__cause__ = error
            self.queue.failed([each for each in entries if each.sender is sender], timeout)
        left = [each for each in entries if each.sender not in late]
        _LOG.warning("inbox: %s; %d messages are tried again, %d are not", error, len(left), len(entries) - len(left))
        return left


def _refusal(each: Entry) -> InvalidMessage | None:
    """Why no row can be made of a message; None: one can."""
    try:
        inbox_rows([each])
    except _NO_ROW as error:
        refusal = InvalidMessage("message", each.content, f"what Arrow makes a row of: {error}")
        refusal.__cause__ = error
        return refusal
    return None


def _parts(turn: Sequence[Entry]) -> list[Sequence[Entry]]:
    """A turn in parts, of which each has one producer at most under each name of a topic: the log has one number."""
    seen = dict[str, list[Sender]]()
    for sender in {each.sender: None for each in turn if each.sender.named}:
        seen.setdefault(sender.transaction, []).append(sender)
    part = {sender: number for senders in seen.values() for number, sender in enumerate(senders)}
    count = max(part.values(), default=0) + 1
    if count == 1:
        return [turn]
    return [[each for each in turn if part.get(each.sender, 0) == number] for number in range(count)]

"""Check of ingest: every file appended to the inbox is in one noted batch, and each of its rows accepted or refused."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.stages import INGEST
from pipeline.delta.deltars import query
from pipeline.delta.logs.change import REASON, Change
from pipeline.delta.logs.entries import Commit, appended, info_of
from pipeline.doctor.look import Finding, Log, Look, Place, error, rows_of, warning
from schemas import INBOX, MESSAGES, REJECTED_INGEST

_MOST = 20_000
"""So many of the newest entries of a log are looked at."""
_BEGINNING = (0, -1)
_AGAIN = "append the rows that are new once more: delayline send, or any writer"
SENT_AGAIN = "delayline-sent-again"
"""Who has sent rows of a version again notes its number under this name (`txn`) in `inbox`."""
_NOTE = f"then note the number of the version under '{SENT_AGAIN}' in `inbox` (docs/operations.md)"
_FEW = 20


@dataclass
class NotedBatch:
    """A batch of ingest, by its notes: from a place of the inbox up to another, and the rows that it wrote.

    `looked`: it looked at versions that are no appends. `left` are files that it did not read, by version and path.
    """

    begin: Place
    end: Place
    looked: bool
    left: frozenset[tuple[int, str]]
    rows: dict[str, int] = field(default_factory=dict)

    def has(self, place: Place) -> bool:
        """Whether a file of the inbox is in it."""
        return self.begin < place <= self.end


class Added(NamedTuple):
    """A file of the inbox: its place, its rows by the log, and its path."""

    place: Place
    rows: int
    path: str


def accounted(look: Look) -> Iterator[Finding]:
    """What the log of the inbox still has was taken once, row by row, or is still to come."""
    logs = [look.table(table).log for table in (MESSAGES, REJECTED_INGEST)]
    batches = sorted(_batches(logs), key=lambda each: (each.begin, each.end))
    inbox = look.table(INBOX).log
    again = set(_sent_again(inbox))
    yield from _no_appends(look, inbox, batches, again)
    known = max(_known(log) for log in logs)
    if batches:
        last = min(_done(look, batches), max(each.end for each in batches))
        entries = inbox.read(max(known[0], inbox.newest - _MOST), last[0])
        left = frozenset[tuple[int, str]]().union(*(each.left for each in batches))
        files = [
            Added((version, index), rows_of(file) or 0, file["path"])
            for version, actions in entries.items()
            if Change.of(version, actions) is None
            for index, file in enumerate(appended(actions))
            if version not in again and (version, file["path"]) not in left
        ]
        yield from _files(batches, [each for each in files if known < each.place <= last])
        yield from _rows(look, [each for each in batches if known <= each.begin and each.end <= last], sorted(files))


def _done(look: Look, batches: Sequence[NotedBatch]) -> Place:
    """The end of what is in all tables: they were opened one after the other, after the checkpoint."""
    stage = look.stages[INGEST]
    place = stage.place(stage.committed) if stage.begun else None
    # Without a checkpoint the last batch may be half done.
    return max(each.begin for each in batches) if place is None else place


def _batches(logs: Sequence[Log]) -> list[NotedBatch]:
    """Noted batches that moved on in the inbox."""
    found: dict[tuple[str, int, Place], NotedBatch] = {}
    for table, log in zip((MESSAGES, REJECTED_INGEST), logs, strict=True):
        for version, commit in log.notes(INGEST, _MOST):
            begin, end = (_place(commit, name) for name in ("begin", "source"))
            left = frozenset((each[0], each[1]) for each in commit.note.get("left", ()))
            fresh = NotedBatch(begin, end, "told" in commit.note, left)
            batch = found.setdefault((commit.owner, commit.batch, end), fresh)
            batch.rows[table.name] = sum(rows_of(file) or 0 for file in log.added(version) or ())
    return list(found.values())


def _place(commit: Commit, name: str) -> Place:
    version, index = commit.note[name]
    return version, index


def _known(log: Log) -> Place:
    """From where on all batches that wrote a table are known."""
    if log.whole and log.newest < _MOST:
        return _BEGINNING
    first = next(log.notes(INGEST, _MOST), None)
    return (1 << 62, 0) if first is None else _place(first[1], "begin")


def _sent_again(inbox: Log) -> Iterator[object]:
    """The versions of which somebody says that what was new in them was sent once more."""
    for actions in inbox.read(inbox.newest - _MOST, inbox.newest).values():
        noted = (each.get("txn") or {} for each in actions)
        yield from (each["version"] for each in noted if each.get("appId") == SENT_AGAIN)


def _no_appends(look: Look, inbox: Log, batches: Sequence[NotedBatch], again: Collection[object]) -> Iterator[Finding]:
    """Versions with rows that a stream passes over: what is new in them is taken in where it can be told."""
    entries = inbox.read(inbox.newest - _MOST, inbox.newest).items()
    found = (Change.of(version, actions) for version, actions in entries if version not in again)
    changes = [change for change in found if change is not None]
    listed = _listed(look) if changes else {}
    for change in changes:
        by = info_of(inbox.actions(change.version) or []).get("engineInfo", "unknown")
        text = f"version {change.version} ({change.operation} by {by}) is no append"
        passed = next((each for each in batches if each.end[0] > change.version), None)
        if passed is None:
            text += "; what is new in it comes if it can be told, the rest will be in `rejected_ingest`"
            yield warning(REASON, INBOX.name, text, "look again when ingest has passed it")
        elif change.version in listed:
            text += f"; {listed[change.version].get('rows', 'unknown')} rows of it were not taken in"
            yield warning(REASON, INBOX.name, text, f"{listed[change.version].get('remedy', _AGAIN)}; {_NOTE}")
        elif not passed.looked:
            text += "; rows that it added or changed never come"
            yield error(REASON, INBOX.name, text, f"{_AGAIN}; {_NOTE}")


def _listed(look: Look) -> dict[int, dict[str, str]]:
    """What ingest says of versions that it has listed."""
    sql = f"SELECT properties FROM t WHERE reason = '{REASON}'"  # noqa: S608 - our own words
    found = query(sql, t=look.table(REJECTED_INGEST).delta)
    properties = (dict(row["properties"] or ()) for row in found)
    return {int(each["version"]): each for each in properties if each.get("version", "").isdecimal()}


def _files(batches: Sequence[NotedBatch], files: Sequence[Added]) -> Iterator[Finding]:
    """Each file is in one batch."""
    found: dict[int, dict[int, int]] = {0: {}, 2: {}}
    begins = [each.begin for each in batches]
    for place, rows, _ in files:
        at = bisect_left(begins, place)
        holding = sum(each.has(place) for each in batches[max(0, at - 2) : at])
        if rows and holding != 1:
            found[holding][place[0]] = found[holding].get(place[0], 0) + rows
    if found[0]:
        remedy = f"send the rows of these versions once more; {_NOTE}"
        yield error("not_taken", INBOX.name, f"{_described(found[0])} were passed over by ingest", remedy)
    if found[2]:
        remedy = "tell the consumers: they get these messages twice"
        yield error("taken_twice", INBOX.name, f"{_described(found[2])} were taken twice by ingest", remedy)


def _described(rows: dict[int, int]) -> str:
    few = ", ".join(map(str, sorted(rows)[:_FEW])) + (f" and {len(rows) - _FEW} more" if len(rows) > _FEW else "")
    return f"{sum(rows.values()):,} rows of versions {few}"


def _rows(look: Look, batches: Sequence[NotedBatch], files: Sequence[Added]) -> Iterator[Finding]:
    """As many rows went out of a batch as came in."""
    places, sums = [each.place for each in files], [0, *accumulate(each.rows for each in files)]
    lost = 0
    for each in batches:
        first, last = (bisect_right(places, place) for place in (each.begin, each.end))
        written = sum(each.rows.values())
        if sums[last] - sums[first] > written:
            # Nobody checks what a producer's log says of its files.
            lost += max(0, sum(_counted(look, file) for file in files[first:last]) - written)
    if lost:
        text = f"{lost:,} rows that ingest took are neither in `messages` nor in `rejected_ingest`"
        yield error("not_accepted", MESSAGES.name, text, look.rebuild(INGEST))


def _counted(look: Look, file: Added) -> int:
    """The rows of a file by its footer; by the log when it is not there, or cannot be read."""
    try:
        with look.table(INBOX).files.open_input_file(file.path) as source:
            return int(pq.read_metadata(source).num_rows)
    except (OSError, pa.ArrowException):
        return file.rows

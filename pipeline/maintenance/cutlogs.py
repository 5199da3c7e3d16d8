"""Trimming: log entries that nobody needs go, and then the files that only they named.

Delta deletes log entries by age alone, in the middle of somebody's commit, and knows nothing of who follows a table. So
it is told to keep them for a year (`pipeline.delta.properties.PROPERTIES`), and they are deleted here, as its protocol
describes (Metadata Cleanup): all entries before a checkpoint, oldest first. An entry stays while a stage may have to
read it, while it is the last one of a stage, whose note says what the stage has done, and while it is young.

**A file outlives the entry that added it.** Vacuum keeps what is not older than the first entry left, by its own time
and by that of its file: the files of a copied log are new. So whoever finds an entry finds its files: a stage, a
take-over, a stream of a user, `delayline receive`.
"""

import math
import sys
from contextlib import suppress

from deltalake import DeltaTable
from pyarrow.fs import FileSelector

import schemas
from pipeline.config.deltaspark import DeltaTable as SparkTable
from pipeline.config.errors import BrokenVersion
from pipeline.config.settings import HOUR_MS, QUIET_VERSIONS
from pipeline.config.stages import DISPATCH, INGEST, SETTLE
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.entries import (
    CHECKPOINT,
    Commit,
    LogFile,
    commits,
    entry,
    first_version,
    info_of,
    log_files,
    note_of,
)
from pipeline.delta.logs.restored import restored_since_note
from pipeline.delta.warehouse import Warehouse, read_here
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.dispatch.backlog import hidden_since
from pipeline.dispatch.prepared import PreparedStore
from pipeline.maintenance.readers import begun_batch, unread_from
from pipeline.settle.plan import PlanFile
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import SinkPlaces

VACUUM = {
    # Delta asks for a week because it does not know who still reads what; here the log says.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Without it Delta hears nothing of the hours it is told, and takes the table's `deletedFileRetentionDuration`.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # Tasks that list folders; of the ten thousand that are usual, each takes milliseconds to start.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Two commits more for each, that say nothing to our readers.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}

_SHARED = (schemas.REDELIVERY, schemas.SEGMENTS)
"""Tables to which a second stage writes."""


def cut_log(warehouse: Warehouse, table: schemas.Table, written_before: int, quiet_before: int | None = None) -> int:
    """Delete the log entries of a table that nobody needs; give how many files of the log went.

    Killed half-way, it leaves a log that begins later than before, and is called again.

    Args:
        warehouse: whose table it is.
        table: the table.
        written_before: entries go up to a checkpoint that was written before this instant, ms UTC.
        quiet_before: if that leaves no more than `QUIET_VERSIONS`, the checkpoint is from before this instant too.
    """
    files, path = warehouse.files, warehouse.path(table)
    found = _log_files(files, path)
    begin, newest = first_version(found), max(file.version for file in found if file.is_entry)
    later = [file for file in found if file.kind == CHECKPOINT and file.version > begin]
    written = {file.version: files.modified_ms(_path(path, file)) for file in later}
    quiet = written_before if quiet_before is None else min(quiet_before, written_before)
    old = [v for v, ms in written.items() if ms < (written_before if newest - v > QUIET_VERSIONS else quiet)]
    needed = unread_from(warehouse, table) if old else None
    if old and table is schemas.DELIVERIES:
        needed = SinkPlaces(files, warehouse.root).needed()
    old = [v for v in old if needed is None or v <= needed]
    if not old:
        # Nobody has to read the log: it may be long, when its reader is far behind.
        return 0
    noted = _noted(files, path, table, newest)
    limit = min(noted.values(), default=newest)
    if table is schemas.DELIVERIES:
        limit = min(limit, _accounted(warehouse))
    if table is schemas.HELD:
        limit = min(limit, _taken_out(warehouse, newest))
    for stage in (each for each, version in noted.items() if version < max(old) and _is_repeated(table, each)):
        _note_again(warehouse, table, stage)
    if table is schemas.REDELIVERY:
        limit = min(limit, _unmarked(warehouse))
    if table is schemas.SEGMENTS:
        limit = min(limit, _unfinished(warehouse))
    first = max((v for v in old if v <= limit), default=0)
    going = [file for file in found if file.version < first and file.is_understood]
    for file in going:
        files.delete(_path(path, file))
    return len(going)


def vacuum(warehouse: Warehouse, table: schemas.Table, slack_ms: int) -> None:
    """Delete the data files that were no longer part of a table when the first entry left of its log was written.

    What Spark left of writing when it was killed goes too, after an hour at least.

    Files of `deliveries` and `held` that a note on the shelf names stay, however long dispatch stands still.

    Args:
        warehouse: whose table it is.
        table: the table.
        slack_ms: so much longer they stay: Delta counts from its own look at the clock, a file is older than the commit
            that names it, and somebody may be reading.
    """
    files, path = warehouse.files, warehouse.path(table)
    noted = table in (schemas.DELIVERIES, schemas.HELD)
    ahead = PreparedStore(files, warehouse.path(schemas.DELIVERIES)).all() if noted else []
    found = _log_files(files, path)
    begin = first_version(found)
    first = next(file for file in found if file.is_entry and file.version == begin)
    needed = [file.modified for each in ahead for part in each.parts for file in part.files]
    needed += [file.modified for each in ahead if each.held is not None for file in each.held.added]
    # The file of a copied entry is newer than the entry is, and than the data files that it names.
    with suppress(BrokenVersion):
        stamp = info_of(entry(files, path, begin) or ()).get("timestamp")
        needed += [stamp] if isinstance(stamp, int) else []
    since = min([files.modified_ms(_path(path, first)), *needed])
    # Delta rounds to whole hours, to the nearest: half an hour would be none, and take what is being read.
    hours = math.ceil((max(0, wall_ms() - since) + slack_ms) / HOUR_MS)
    if _finds(files, path, hours):
        SparkTable.forPath(warehouse.spark, path).vacuum(hours)
    # Delta passes over names with an underscore: what Spark was writing when its process was killed would stay.
    for folder in (f"{path}/{name}/_temporary" for name in files.folders(path)):
        if files.exists(folder) and files.modified_ms(folder) < wall_ms() - max(slack_ms, HOUR_MS):
            files.delete_folder(folder)


def _finds(files: Files, path: str, hours: int) -> bool:
    """Whether a vacuum, which takes seconds, would find a file to delete; or that cannot be said here.

    Delta-rs knows which files a table needs, but not those of deletion vectors. It tells all that were taken out of it,
    also those that are long gone.
    """

    def asked(opened: DeltaTable) -> bool:
        if opened.protocol().min_reader_version > 1:
            return True
        unneeded = set(opened.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True))
        there = files.folder(path).get_file_info(FileSelector("", recursive=True)) if unneeded else []
        return any(each.path in unneeded for each in there)

    found = read_here(files, path, None, asked)
    return found is None or found


def _log_files(files: Files, path: str) -> list[LogFile]:
    return log_files(files.names(f"{path}/_delta_log"))


def _path(path: str, file: LogFile) -> str:
    return f"{path}/_delta_log/{file.name}"


def _noted(files: Files, path: str, table: schemas.Table, newest: int) -> dict[str, int]:
    """The version of the last commit of the stage that writes a table, back to which its look-up has to reach.

    Sources and replays are producers that take notes, each under a name of its own, so the last one of each is kept.
    """
    last: dict[str, int] = {}
    if table in (schemas.CONSUMER_EVENTS, schemas.COMMANDS, schemas.SUBSCRIPTIONS):
        # No stage writes it.
        return last
    for back, actions in enumerate(commits(files, path, newest)):
        commit = note_of(actions)
        if commit is not None and (table is schemas.INBOX or commit.stage == table.writer):
            last.setdefault(commit.stage, newest - back)
            if table is not schemas.INBOX:
                break
    return last


def _is_repeated(table: schemas.Table, stage: str) -> bool:
    """Whether the last note of a stage is repeated when it is in the way of the log; of a replay that is over, too."""
    return stage == table.writer if table in _SHARED else table is schemas.INBOX


class _Overtaken(Exception):
    """The stage has committed itself."""


def _note_again(warehouse: Warehouse, table: schemas.Table, stage: str) -> None:
    """Repeat the last note of a stage that writes a table, as the newest version; nothing if it commits meanwhile.

    `redelivery` and `segments` have two writers each: ingest, or settle, may write there for long while the stage whose
    table it is has nothing to say. Its last note must stay, and would hold all that came after it. So it is with a
    source that has nothing new while other producers append to `inbox`.
    """

    def guard(text: str | None) -> None:
        commit = Commit.loads(text)
        if commit is not None and commit.stage == stage:
            raise _Overtaken

    path = warehouse.path(table)
    appender = Appender(warehouse.session, path, table, guard)
    last = last_commit(warehouse, table, stage)
    if last is not None and restored_since_note(warehouse.files, path, table) is None:
        with suppress(_Overtaken):
            appender.commit([], last.dumps())


def _unmarked(warehouse: Warehouse) -> int:
    """The version of `redelivery` after which ingest may have released what `segments` does not know of yet."""
    taken, marked = (last_commit(warehouse, table, INGEST) for table in (schemas.MESSAGES, schemas.SEGMENTS))
    if taken is None or (marked is not None and marked.note["next_ledger"] >= taken.note["next_ledger"]):
        return sys.maxsize
    return int(taken.note["redelivery"]) if taken.note.get("express") else sys.maxsize


def _taken_out(warehouse: Warehouse, last: int) -> int:
    """The version of `held` after which its log says what was taken out of it and may not be visible."""
    since = hidden_since(warehouse, last_commit(warehouse, schemas.DELIVERIES, DISPATCH))
    return last if since is None else since


def _unfinished(warehouse: Warehouse) -> int:
    """The version of `segments` after which settle may have written what `cursors` does not know of yet.

    Settle may have died between the two, and stay away for long. Its next start looks for that commit.
    """
    last = last_commit(warehouse, schemas.CURSORS, SETTLE)
    noted = PlanFile(warehouse.files, warehouse.checkpoint(SETTLE)).plan
    if noted is not None:
        return sys.maxsize if last is not None and noted.batch <= last.batch else noted.segments
    if last is not None:
        # Without a checkpoint nobody knows whether a batch was begun behind the last one.
        return int(last.note["segments"])
    begun = begun_batch(warehouse)
    return sys.maxsize if begun is None else begun.segments


def _accounted(warehouse: Warehouse) -> int:
    """The version of `deliveries` up to which `publications` accounts for it; the rest is read from its log."""
    last = last_commit(warehouse, schemas.PUBLICATIONS, DISPATCH)
    return 0 if last is None else int(last.note["version"])

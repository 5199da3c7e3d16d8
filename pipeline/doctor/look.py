"""One look at a warehouse, without Spark: its tables, their logs entry by entry, and what a check finds there.

What is written last is read first: what a checkpoint calls done is on the shelf or in `deliveries` when those are
read, what is delivered is in `redelivery`, what is released in `messages`. What retention deletes meanwhile lies below
its mark, which is read at the end. So that works while the stages run.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileType

import schemas
from pipeline.client.clock import is_virtual
from pipeline.client.subscribing.lines import registered_in
from pipeline.client.subscribing.lives import lives_in
from pipeline.client.subscribing.registryview import RegistryView
from pipeline.config.errors import BrokenVersion, NoWarehouse
from pipeline.config.spelling import command_line
from pipeline.config.stages import STAGES
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.delta.logs.entries import Commit, appended, entry, log_files, note_of
from pipeline.delta.logs.features import CatalogManaged
from pipeline.delta.logs.filestats import count
from pipeline.dispatch.prepared import Prepared, PreparedStore, not_replaced
from pipeline.doctor.stages import Standing
from pipeline.storage.files import Files
from pipeline.storage.texts import with_texts
from pipeline.subscriptions.calendars import NO_CALENDARS, Calendars, calendars_of
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from pipeline.subscriptions.settled import read_mark


class Severity(StrEnum):
    """How bad it is.

    `error`: a promise is broken, or a start will be refused. `warning`: somebody should look. `note`: nothing is wrong.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that somebody should know.

    Attributes:
        check: the name of the check; `examine` knows it.
        what: what is wrong, in one word for scripts; the same word means the same thing in every release.
        severity: how bad it is.
        subject: the table, the stage, or the topic and subscription.
        text: what was seen, for people.
        remedy: what to do; a command where one heals it. Empty: nothing.
    """

    check: str
    what: str
    severity: Severity
    subject: str
    text: str
    remedy: str = ""

    @property
    def same(self) -> tuple[str, str, str]:
        """Two findings of one kind about one subject are the same, whatever their figures are."""
        return self.check, self.what, self.subject


def error(what: str, subject: str, text: str, remedy: str) -> Finding:
    """A broken promise, or a start that will be refused."""
    return Finding("", what, Severity.ERROR, subject, text, remedy)


def warning(what: str, subject: str, text: str, remedy: str) -> Finding:
    """What may become an error."""
    return Finding("", what, Severity.WARNING, subject, text, remedy)


def note(what: str, subject: str, text: str) -> Finding:
    """What is not wrong."""
    return Finding("", what, Severity.NOTE, subject, text)


Actions = list[dict[str, Any]]
Place = tuple[int, int]
"""A place in a table that somebody follows: a version, and the last file of it that was taken; negative: none."""
FOLDER = "_delta_log"
_THREADS = 16
"""Small files are read by so many at once: on an object store each takes tens of milliseconds."""


class Log:
    """What lies in the log folder of a table. Listed once; entries are read when they are asked for, once each."""

    def __init__(self, table: str, last: int | None = None) -> None:
        """List the log of the table in a folder; versions later than the last one are left out."""
        self._files, self._table, folder = Files(), table, f"{table}/{FOLDER}"
        self._sizes = self._files.sizes(folder) if self._files.exists(folder) else {}
        found = [file for file in log_files(self._sizes) if last is None or file.version <= last]
        self.versions = [file.version for file in found if file.is_entry]
        self.checkpoints = sorted({file.version for file in found if file.is_checkpoint})
        self._read: dict[int, Actions | None] = {}

    @property
    def newest(self) -> int:
        """The newest version; -1: there is none."""
        return self.versions[-1] if self.versions else -1

    @property
    def whole(self) -> bool:
        """Whether the log begins with the table."""
        return self.versions[:1] == [0]

    def empty(self) -> list[int]:
        """Versions whose entry has no bytes."""
        return [version for version in self.versions if self._sizes[f"{version:020d}.json"][0] == 0]

    def last_checkpoint(self) -> int | None:
        """The version to which `_last_checkpoint` points; None without that file, -1 when it cannot be read."""
        text = self._files.text_if_there(f"{self._table}/{FOLDER}/_last_checkpoint")
        try:
            return None if text is None else int(json.loads(text)["version"])
        except (ValueError, KeyError, TypeError):
            return -1

    def actions(self, version: int) -> Actions | None:
        """The actions of a version; None when it has no entry that can be read."""
        if version not in self._read:
            self._read[version] = self._load(version)
        return self._read[version]

    def read(self, first: int, last: int) -> dict[int, Actions]:
        """The actions of each version from one to another that has an entry that can be read, ascending."""
        wanted = [version for version in self.versions if first <= version <= last]
        missing = [version for version in wanted if version not in self._read]
        with ThreadPoolExecutor(_THREADS) as pool:
            self._read.update(zip(missing, pool.map(self._load, missing), strict=True))
        return {version: actions for version in wanted if (actions := self._read[version]) is not None}

    def last_note(self, stage: str) -> Commit | None:
        """The last commit of a stage. Maintenance in between is passed over."""
        last = self.last(stage)
        return None if last is None else last[1]

    def last(self, stage: str) -> tuple[int, Commit] | None:
        """The same with its version."""
        for version in reversed(self.versions):
            noted = note_of(self.actions(version) or [])
            if noted is not None and noted.stage == stage:
                return version, noted
        return None

    def notes(self, stage: str, most: int) -> Iterator[tuple[int, Commit]]:
        """The commits of a stage among the newest entries, so many at most, ascending, each with its version."""
        for version, actions in self.read(self.newest - most + 1, self.newest).items():
            noted = note_of(actions)
            if noted is not None and noted.stage == stage:
                yield version, noted

    def added(self, version: int) -> list[dict[str, Any]] | None:
        """The files that a version appended, as a stream of the table sees them; None when nobody can tell.

        A version that takes rows out gives none: streams pass over it.
        """
        actions = self.actions(version)
        return None if actions is None else appended(actions)

    def after(self, place: Place) -> list[tuple[Place, dict[str, Any]]] | None:
        """The files appended after a place, each with its own place; None when the log does not reach back to it."""
        first, last = place[0], self.newest
        self.read(first, last)
        found: list[tuple[Place, dict[str, Any]]] = []
        for version in range(first, last + 1):
            files = self.added(version)
            if files is None:
                return None
            found += [((version, index), file) for index, file in enumerate(files) if (version, index) > place]
        return found

    def _load(self, version: int) -> Actions | None:
        with suppress(BrokenVersion):
            return entry(self._files, self._table, version)
        return None


def rows_of(file: Mapping[str, Any]) -> int | None:
    """How many rows a file has, by its entry in the log; None when that does not say."""
    return count(file.get("stats"))


_ORDER = (
    *(schemas.REJECTED_SETTLE, schemas.CURSORS, schemas.CLOSED, schemas.CONSUMER_EVENTS),
    *(schemas.HELD, schemas.PUBLICATIONS, schemas.DELIVERIES, schemas.REJECTED_DISPATCH),
    *(schemas.REDELIVERY, schemas.REJECTED_SCHEDULE, schemas.SEGMENTS, schemas.REPLACED, schemas.MESSAGES),
    *(schemas.REJECTED_INGEST, schemas.INBOX, schemas.SUBSCRIPTIONS, schemas.COMMANDS, schemas.SCHEDULES),
    schemas.CALENDARS,
)
"""Tables written last come first."""


class Opened:
    """A table at one version, its log and its folder.

    Attributes:
        error: why it cannot be opened; empty: it can.
        managed: whether that is because a catalog manages it.
    """

    def __init__(self, root: str, table: schemas.Table) -> None:
        """Open it; what cannot be opened is kept as an error.

        Raises:
            NoWarehouse: nothing is there.
        """
        self.table, self.error, self.managed = table, "", False
        folder = path_of(root, table)
        self.files = Files().folder(folder)
        self._delta: DeltaTable | None = None
        try:
            self._delta = open_table(root, table)
        except NoWarehouse:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, others are looked at
            self.error, self.managed = f"{type(error).__name__}: {error}", isinstance(error, CatalogManaged)
        self.log = Log(folder, None if self._delta is None else self._delta.version())

    @property
    def delta(self) -> DeltaTable:
        """The table.

        Raises:
            Unreadable: it could not be opened.
        """
        if self._delta is None:
            raise Unreadable(self.table.name)
        return self._delta

    def gone(self, paths: Iterable[str]) -> list[str]:
        """Which of some files are not there."""
        return [info.path for info in self.files.get_file_info(list(paths)) if info.type != FileType.File]

    def rows(self, path: str, columns: Sequence[str]) -> pa.Table:
        """Columns of a file, as far as it has them: files of earlier versions of this project have fewer.

        Raises:
            FileNotFoundError: it is not there.
        """
        with self.files.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            return with_texts(parquet.read(columns=[name for name in columns if name in parquet.schema_arrow.names]))


class Unreadable(Exception):
    """A check needs a table that could not be opened; the check of the tables says why."""


class Look:
    """What a warehouse holds. Tables are at fixed versions; their rows are read by the checks."""

    def __init__(self, root: str, now_ms: int) -> None:
        """Open everything, in order.

        Args:
            root: the warehouse.
            now_ms: the wall clock, ms UTC.

        Raises:
            NoWarehouse: there is no table at all.
        """
        self.root, self.now_ms = root.rstrip("/"), now_ms
        self.stages = {stage: Standing(self.root, stage) for stage in STAGES}
        self.shelf, self.torn = _shelf(path_of(self.root, schemas.DELIVERIES))
        self.missing: list[str] = []
        # Those that are there, by name.
        self.tables: dict[str, Opened] = {}
        for table in _ORDER:
            try:
                self.tables[table.name] = Opened(self.root, table)
            except NoWarehouse:
                self.missing.append(table.name)
        if len(self.missing) == len(schemas.TABLES):
            raise NoWarehouse(root, schemas.INBOX.name)
        self.mark = read_mark(Files(), self.root)

    def table(self, table: schemas.Table) -> Opened:
        """A table.

        Raises:
            Unreadable: it is not there.
        """
        if table.name not in self.tables:
            raise Unreadable(table.name)
        return self.tables[table.name]

    @property
    def virtual(self) -> bool:
        """Whether the stages run under a virtual clock."""
        return is_virtual(self.root)

    @cached_property
    def registry(self) -> RegistryView:
        """Who listens, read once for all checks."""
        table = self.table(schemas.SUBSCRIPTIONS).delta
        return RegistryView(table, registered_in(table))

    @cached_property
    def calendars(self) -> Calendars:
        """Days off; a warehouse that an earlier version of this project made has none."""
        opened = self.tables.get(schemas.CALENDARS.name)
        return NO_CALENDARS if opened is None else calendars_of(query("SELECT * FROM t", t=opened.delta))

    @cached_property
    def lives(self) -> dict[Name, Incarnation]:
        """The present lives, as ingest has noticed them."""
        return alive(lives_in(self.table(schemas.SEGMENTS).delta))

    def command(self, *words: str) -> str:
        """A command on this warehouse; see `command_line`."""
        return command_line(self.root, *words)

    def rebuild(self, stage: str) -> str:
        """The command that lets a stage go on from the tables."""
        return self.command("rebuild", "--stage", stage)


def _shelf(deliveries: str) -> tuple[list[Prepared], list[str]]:
    """What is prepared and not visible as a whole, in order, and the names of notes that cannot be read."""
    noted, torn = list[Prepared](), list[str]()
    for name, text in PreparedStore(Files(), deliveries).texts().items():
        try:
            noted.append(Prepared.loads(text))
        except (ValueError, KeyError, TypeError):
            torn.append(name)
    return sorted(not_replaced(noted), key=lambda each: each.number), torn

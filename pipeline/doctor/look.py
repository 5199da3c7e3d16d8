"""One look at a warehouse, in an order that works while the stages run.

What is written last is read first: what a checkpoint calls done is on the shelf or in `deliveries` when those are
read, what is delivered is in `redelivery`, what is released in `messages`. What retention deletes meanwhile lies below
its mark, which is read at the end.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileType

import schemas
from pipeline.client.subscribing.lives import lives_in
from pipeline.config.errors import NoWarehouse
from pipeline.config.stages import STAGES
from pipeline.delta.deltars import open_table, path_of
from pipeline.dispatch.prepared import Prepared, PreparedStore, not_replaced
from pipeline.doctor.logs import Log
from pipeline.doctor.stages import Standing
from pipeline.storage.files import Files
from pipeline.storage.texts import with_texts
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from pipeline.subscriptions.settled import read_mark

_ORDER = (
    *(schemas.REJECTED_SETTLE, schemas.CURSORS, schemas.CLOSED, schemas.CONSUMER_EVENTS),
    *(schemas.HELD, schemas.PUBLICATIONS, schemas.DELIVERIES, schemas.REJECTED_DISPATCH),
    *(schemas.REDELIVERY, schemas.REJECTED_SCHEDULE, schemas.SEGMENTS, schemas.MESSAGES),
    *(schemas.REJECTED_INGEST, schemas.INBOX, schemas.SUBSCRIPTIONS, schemas.COMMANDS),
)
"""Tables written last come first."""


class Opened:
    """A table at one version, its log and its folder."""

    def __init__(self, root: str, table: schemas.Table) -> None:
        """Open it; what cannot be opened is kept as an error.

        Raises:
            NoWarehouse: nothing is there.
        """
        self.table, self.error = table, ""
        folder = path_of(root, table)
        self.files = Files().folder(folder)
        self._delta: DeltaTable | None = None
        try:
            self._delta = open_table(root, table)
        except NoWarehouse:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, others are looked at
            self.error = f"{type(error).__name__}: {error}"
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
        return bool(Files().names(f"{self.root}/_clock"))

    @cached_property
    def lives(self) -> dict[Name, Incarnation]:
        """The present lives, as ingest has noticed them."""
        return alive(lives_in(self.table(schemas.SEGMENTS).delta))

    def command(self, words: str) -> str:
        """A command on this warehouse."""
        first, _, more = words.partition(" ")
        return f"delayline {first} --warehouse {self.root} {more}".rstrip()

    def rebuild(self, stage: str) -> str:
        """The command that lets a stage go on from the tables."""
        return self.command(f"rebuild --stage {stage}")


def _shelf(deliveries: str) -> tuple[list[Prepared], list[str]]:
    """What is prepared and not visible as a whole, in order, and the names of notes that cannot be read."""
    noted, torn = list[Prepared](), list[str]()
    for name, text in PreparedStore(Files(), deliveries).texts().items():
        try:
            noted.append(Prepared.loads(text))
        except (ValueError, KeyError, TypeError):
            torn.append(name)
    return sorted(not_replaced(noted), key=lambda each: each.number), torn

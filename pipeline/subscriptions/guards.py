"""Guards: conditions that a message has to meet when it is due, over its columns and over tables of others.

A condition is DataFusion's SQL, as that of a command is. The tables that it names are Delta tables, given by their
paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipeline.config import arrowcompute as pc
from pipeline.config.errors import BadValue, check_text
from pipeline.config.paths import local_path, one_spelling
from pipeline.delta.conditions import why
from pipeline.delta.deltars import arrow_of
from pipeline.delta.logs.opening import table_at
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.storage.files import Files
from pipeline.storage.notes import Notes
from pipeline.subscriptions.incarnations import Name
from schemas import DELIVERIES

NUMBER, PAYLOAD, PAYLOAD_TEXT, DUE = "number", "payload", "payload_text", "due"
_KINDS = arrow_schema(DELIVERIES.columns)
_OF_DELIVERY = (
    "topic", "subscription", "message_key", "properties", "deliver_at", "due_time", "publish_time", "ledger_id",
    "entry_id", "redelivery_count",
)  # fmt: skip
SEEN = pa.schema(
    [
        (NUMBER, pa.int64()),
        *(_KINDS.field(name) for name in _OF_DELIVERY),
        ("payload_bytes", pa.int64()),
        (PAYLOAD, pa.binary()),
        (PAYLOAD_TEXT, pa.string()),
    ]
)
"""What a condition sees: a number, and columns of a delivery. `payload_text` is NULL where the payload is no UTF-8."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MOVING = re.compile(r"\b(now|current_timestamp|current_date|current_time|random|uuid)\b", re.IGNORECASE)
_ALLOWED = f"a condition (SQL) over {', '.join(SEEN.names[1:])} and the tables that are named"


_SAID = re.compile(r"(?:^|caused by\n)(SQL error|Schema error|Error during planning)")
_KINDS_OF_ERRORS = {
    r"Divide ?by ?zero": "a division by zero",
    r"Cast ?error": "a value cannot be cast",
    r"Parse ?error|Parser ?error": "a value cannot be parsed",
    r"Overflow": "a number is too large",
    r"Resources exhausted": "it takes too much memory",
    r"not found|No such file|NotFound": "something that it reads is not there",
}
FOLDER = "guard_tables"
"""The folder of a warehouse whose tables every guard may read."""


_STATES = "_guards"
"""The folder of what is noted, for people, of guards that fail. What counts is in `held`."""


class GuardFailed(Exception):
    """A guard cannot be evaluated. What it guards waits; it is tried again by itself.

    Its text is in words of ours: others see it, so it has no value of any row.

    Attributes:
        took_ms: how long it took to find that out.
        said: what the engine says, for whoever asks with rights of their own.
        ended: the process that evaluates guards has ended, and another one starts.
    """

    def __init__(self, kind: str, took_ms: int = 0, said: str | None = None, *, ended: bool = False) -> None:
        super().__init__(kind)
        self.took_ms, self.said, self.ended = took_ms, said or kind, ended


class Starting(Exception):
    """The process that evaluates guards is not ready yet. No guard has failed."""


@dataclass(frozen=True)
class Guard:
    """A condition, and the tables that it reads.

    Attributes:
        condition: in DataFusion's SQL, over the columns `SEEN` and the tables.
        tables: paths of Delta tables, by the names that they have in the condition.

    Raises:
        BadValue: a name or a path that is none.
    """

    condition: str
    tables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot be followed; whether the condition can be, `checked` says."""
        check_text("guard", self.condition)
        for name, path in self.tables.items():
            if not _NAME.fullmatch(name) or name == DUE:
                raise BadValue("guard_tables", name, f"a name in lower case other than {DUE}")
            here = local_path(path, None)
            if not path or (here is None and "://" not in path and not path.startswith("/")):
                raise BadValue("guard_tables", path, "the path of a Delta table from the root on, or its address")

    @classmethod
    def of(cls, condition: str, tables: str | None) -> Guard:
        """From the texts of the registry.

        Raises:
            BadValue: they are none.
        """
        return cls(condition, tables_of(tables))

    def columns(self) -> list[str]:
        """The columns that the condition may need: payloads may be large."""
        spared = [name for name in (PAYLOAD, PAYLOAD_TEXT) if not _names(self.condition, name)]
        return [name for name in SEEN.names if name not in spared]

    def met_by(self, rows: pa.Table, tables: Mapping[str, DeltaTable]) -> IntArray:
        """The numbers of the rows that meet it; where it is false or NULL they do not.

        Args:
            rows: the columns of `SEEN` that it needs.
            tables: those that it names, at the versions that are to be read.

        Raises:
            GuardFailed: it cannot be evaluated.
        """
        text = f"SELECT {NUMBER} FROM {DUE} WHERE (\n{self.condition}\n)"  # noqa: S608 - the user's own condition
        try:
            with TemporaryDirectory() as folder:
                write_deltalake(folder, rows)
                found = arrow_of(text, **{DUE: DeltaTable(folder)}, **tables)
                numbers: IntArray = np.unique(longs(found, NUMBER))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # A panic of the engine is no `Exception`, and must not stop those who have no guard.
            said = why(error, text, self.condition, SEEN.names[1:], DUE)
            raise GuardFailed(kind_of(error), said=said) from error
        return numbers

    def checked(self) -> None:
        """Look whether the condition can be evaluated, over no message, and whether its tables can be read.

        Raises:
            BadValue: it cannot.
        """
        moving = _MOVING.search(self.condition)
        if moving is not None:
            # A release that is repeated in a replay would come to something else.
            raise BadValue("guard", moving[0], f"{_ALLOWED}, that is the same whenever it is asked")
        for name, path in self.tables.items():
            try:
                arrow_of(f"SELECT * FROM {name} LIMIT 1", **{name: opened(path)})  # noqa: S608 - checked
            except Exception as error:
                raise BadValue("guard_tables", path, f"a Delta table that can be read ({_said(error)})") from error
        try:
            rows = pa.schema([SEEN.field(name) for name in self.columns()]).empty_table()
            self.met_by(rows, {name: opened(path) for name, path in self.tables.items()})
        except GuardFailed as error:
            raise BadValue("guard", self.condition, f"{_ALLOWED} ({error.said})") from error


def opened(path: str, version: int | None = None) -> DeltaTable:
    """A table of others, as of a version or as it is now, opened anew: another one may be there under the same name.

    Raises:
        GuardFailed: it is not there, or cannot be reached.
    """
    try:
        return table_at(one_spelling(path), version)
    except Exception as error:
        raise GuardFailed("a table that it reads is not there, or cannot be read", said=_said(error)) from error


def tables_of(text: str | None) -> Mapping[str, str]:
    """The tables of a guard, from the text of the registry: a JSON object of paths by names.

    Raises:
        BadValue: it is none.
    """
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadValue("guard_tables", text, "a JSON object of paths by names") from error
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise BadValue("guard_tables", text, "a JSON object of paths by names")
    return found


def text_of(tables: Mapping[str, str]) -> str | None:
    """The text of the registry."""
    return json.dumps(dict(sorted(tables.items()))) if tables else None


def texts_of(payloads: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Payloads as texts; NULL where one is no UTF-8."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(each) for each in payloads.to_pylist()], pa.string())


def seen(columns: Mapping[str, pa.Array | pa.ChunkedArray], names: list[str]) -> pa.Table:
    """Rows as a condition sees them.

    Args:
        columns: those of `SEEN`, but for the ones that follow from the payload.
        names: of `SEEN`, that are wanted.
    """
    values = dict(columns)
    values["payload_bytes"] = pc.fill_null(pc.binary_length(values[PAYLOAD]), 0)
    if PAYLOAD_TEXT in names:
        values[PAYLOAD_TEXT] = texts_of(values[PAYLOAD])
    return pa.table([values[name] for name in names], names=names).cast(pa.schema([SEEN.field(name) for name in names]))


def _names(condition: str, column: str) -> bool:
    return re.search(rf"\b{column}\b", condition, re.IGNORECASE) is not None


def _text(payload: bytes | None) -> str | None:
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None


def kind_of(error: BaseException) -> str:
    """The kind of an error of the engine, in words of ours."""
    text = str(error)
    if _SAID.search(text):
        return "it does not fit its tables: a column, a function or a table is not there, or it is no SQL"
    kinds = (kind for pattern, kind in _KINDS_OF_ERRORS.items() if re.search(pattern, text, re.IGNORECASE))
    return next(kinds, "the engine cannot evaluate it")


def _said(error: BaseException) -> str:
    """What the engine says, in one line: the cause stands last."""
    return " ".join(str(error).rpartition("caused by\n")[2].split()) or type(error).__name__


@dataclass(frozen=True)
class GuardState:
    """A guard that fails.

    Attributes:
        topic: of the subscription.
        subscription: its name.
        guard: the condition.
        error: why it cannot be evaluated.
        since_ms: since when, ms UTC.
        messages: on so many messages; the others come. 0: on any, and everything of the subscription waits.
    """

    topic: str
    subscription: str
    guard: str
    error: str
    since_ms: int
    messages: int = 0

    @property
    def text(self) -> str:
        """Why, for people."""
        return f"on {self.messages} messages: {self.error}" if self.messages else self.error


class GuardStates:
    """The files of a warehouse: one for each guard that fails."""

    def __init__(self, files: Files, root: str) -> None:
        self._notes = Notes(files, f"{root}/{_STATES}", GuardState)

    def put(self, state: GuardState) -> None:
        """Note that a guard fails."""
        self._notes.put(_hashed((state.topic, state.subscription)), state)

    def drop(self, name: Name) -> None:
        """The guard of a subscription does not fail."""
        self._notes.drop(_hashed(name))

    def all(self) -> dict[Name, GuardState]:
        """All that fail, by topic and subscription."""
        return {(each.topic, each.subscription): each for each in self._notes.all().values()}

    def errors(self, guards: Mapping[Name, str | None]) -> dict[Name, str]:
        """Why guards fail, of subscriptions that have these."""
        noted = self.all() if any(guard is not None for guard in guards.values()) else {}
        return {name: each.text for name, each in noted.items() if guards.get(name) == each.guard}


def _hashed(name: Name) -> str:
    """The name of the note of a subscription: a topic may have any characters."""
    return sha256(json.dumps(name).encode()).hexdigest()[:32]

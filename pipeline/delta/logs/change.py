"""A version of the inbox that is no append, judged by its log entry. No Spark: the doctor judges as ingest does."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pipeline.delta.logs.entries import info_of, is_plain, rows_of
from schemas import INBOX

REASON = "not_an_append"
"""Of a row of `rejected_ingest` that tells of a whole version; its `properties` say which one, and what to do."""
_AGAIN = "append the rows that are new once more, by a plain append"
_STAY = "none: a message that was taken in stays as it is; append a changed one as a new message"
_EQUAL = re.compile(r"^(?:\w+\.)?`?(\w+)`?(?:#\d+L?)?\s*=\s*(?:\w+\.)?`?(\w+)`?(?:#\d+L?)?$")
"""One comparison of a condition of MERGE, as Spark and delta-rs write it into the log."""
_MOST_DIGITS = 19
_KEYS = frozenset(name for name in INBOX.columns.names if name != "properties")


@dataclass(frozen=True)
class Change:
    """A version that is no append, and added rows.

    Attributes:
        version: which one.
        operation: as the log has it.
        added: the actions of its added files, with `path` decoded.
        removed: the same of those that it took out.
        inserted: new rows, by its own account; None: it gives none.
        updated: the same for changed rows.
        keys: columns by which a MERGE matched rows; empty: it did so in another way.
    """

    version: int
    operation: str
    added: tuple[Mapping[str, Any], ...]
    removed: tuple[Mapping[str, Any], ...]
    inserted: int | None
    updated: int | None
    keys: tuple[str, ...]

    @classmethod
    def of(
        cls, version: int, actions: Sequence[Mapping[str, Any]], columns: Collection[str] = _KEYS
    ) -> "Change | None":
        """From the actions of a version; None for an append, and for one that only took rows out.

        Args:
            version: which one.
            actions: what it did.
            columns: of the table, by which rows may be matched.
        """
        info = info_of(actions)
        operation, metrics = str(info.get("operation", "unknown")), _fields(info, "operationMetrics")
        added, removed = (_data_files(actions, kind) for kind in ("add", "remove"))
        # RESTORE brings back files that were taken in before, and may take none out.
        if not added or operation == "DELETE" or not (removed or operation == "RESTORE"):
            return None
        inserted = _number(metrics, "numTargetRowsInserted", "num_target_rows_inserted")
        updated = _number(
            metrics, "numTargetRowsUpdated", "num_target_rows_updated", "numUpdatedRows", "num_updated_rows"
        )
        if operation == "MERGE" and (inserted, updated) == (0, 0):
            return None
        keys = _keys(_fields(info, "operationParameters").get("predicate"), columns) if operation == "MERGE" else ()
        return cls(version, operation, added, removed, inserted, updated, keys)

    @property
    def is_separable(self) -> bool:
        """Whether it says what is needed to tell its new rows from changed ones."""
        files = (*self.added, *self.removed)
        return self.operation == "MERGE" and bool(self.inserted and self.keys) and all(map(is_plain, files))

    def left_out(self, *, separated: bool) -> int | None:
        """How many of its rows are not taken in; None when nobody knows."""
        if separated:
            return self.updated
        if self.inserted is None and self.updated is None:
            # Nobody checks statistics: files that are said to be empty may not be.
            return rows_of(self.added) or None
        return (self.inserted or 0) + (self.updated or 0)

    def refusal(self, *, separated: bool) -> dict[str, Any] | None:
        """The row of `rejected_ingest`; None when nothing is left out."""
        rows = self.left_out(separated=separated)
        if rows == 0:
            return None
        remedy = _STAY if separated or self.operation == "UPDATE" or self.inserted == 0 else _AGAIN
        said = {"version": self.version, "operation": self.operation, "rows": "unknown" if rows is None else rows}
        return {"reason": REASON, "properties": {name: str(each) for name, each in said.items()} | {"remedy": remedy}}


def _data_files(actions: Iterable[Mapping[str, Any]], kind: str) -> tuple[Mapping[str, Any], ...]:
    files = (each[kind] for each in actions if kind in each)
    return tuple({**file, "path": unquote(file["path"])} for file in files if file.get("dataChange", True))


def _number(metrics: Mapping[str, Any], *names: str) -> int | None:
    """The first of some figures that is there. What is no number says nothing."""
    texts = (str(metrics[name]) for name in names if name in metrics)
    return next((int(text) for text in texts if text.isdecimal() and len(text) < _MOST_DIGITS), None)


def _fields(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of what a writer says of itself, whose shape is left to writers."""
    text = info.get(name)
    return text if isinstance(text, dict) else {}


def _keys(predicate: object, columns: Collection[str]) -> tuple[str, ...]:
    """The columns that a condition compares with themselves, when it does nothing else; else none."""
    try:
        parts = json.loads(str(predicate))
    except ValueError:
        parts = [predicate]
    terms = " AND ".join(map(str, parts if isinstance(parts, list) else [parts]))
    found = [_EQUAL.match(term.strip()) for term in re.split(r"\s+AND\s+", re.sub(r"[()]", " ", terms))]
    names = [match[1] for match in found if match is not None and match[1] == match[2] and match[1] in columns]
    return tuple(names) if len(names) == len(found) else ()

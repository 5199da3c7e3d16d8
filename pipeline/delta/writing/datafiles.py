"""Data files of a table, as a version of its log names them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class DataFile:
    """A Parquet file in a table's folder, as a version will name it.

    Attributes:
        path: relative to the table.
        size: bytes.
        modified: ms UTC.
        rows: how many it holds, at least one.
        stats: its statistics in Delta's JSON.
    """

    path: str
    size: int
    modified: int
    rows: int
    stats: str

    @property
    def action(self) -> dict[str, Any]:
        """What a version says of it."""
        fields = {"path": quote(self.path, safe="/=-_.~"), "size": self.size, "modificationTime": self.modified}
        return {"add": {**fields, "partitionValues": {}, "dataChange": True, "stats": self.stats}}


def rows(files: Iterable[DataFile]) -> int:
    """How many rows files hold."""
    return sum(file.rows for file in files)


def size_of(files: Iterable[DataFile]) -> int:
    """Bytes of files."""
    return sum(file.size for file in files)

"""The log of `deliveries`: which version has which files."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.client.following.datarows import DataFile, DataRows, data_file
from pipeline.client.following.tail import Actions, Follower
from pipeline.config.errors import VersionGone
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import commits
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.logs.notes import note_of
from pipeline.storage.files import Files
from schemas import DELIVERIES

_MOST_VERSIONS = 10_000
"""Kept for who is behind; who is further behind reads the table, since an application may stand still for days."""


class DeliveryLog(Follower):
    """Versions as they come; those that nobody needs any more are forgotten.

    Attributes:
        data: reads the files.
        source: the version of `redelivery` up to which the newest version shows what was released; -1: nothing.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Stand behind the newest version."""
        super().__init__(files, path_of(root, DELIVERIES))
        self.data = DataRows(self._folder, files)
        self._entries: dict[int, list[DataFile]] = {}
        self.source = -1
        self._begin_anew()

    def files(self, version: int) -> list[DataFile]:
        """The files that a version added, in no order.

        Raises:
            VersionGone: it is not held any more. What it added is in the table.
        """
        found = self._entries.get(version)
        if found is None:
            raise VersionGone(DELIVERIES.name, version, "_delta_log")
        return found

    def forget(self, before: int) -> None:
        """Versions before one are not needed any more, and too many are not kept for anybody."""
        before = max(before, self.next - _MOST_VERSIONS)
        for version in [each for each in self._entries if each < before]:
            del self._entries[version]

    def table(self, version: int) -> list[DataFile]:
        """The files of the table at a version, in no order.

        Raises:
            VersionGone: nobody can say what the table was then.
        """
        return files_at(self._folder, version)

    def _take(self, version: int, actions: Actions) -> None:
        source = _source(actions)
        self.source = self.source if source is None else source
        self._entries[version] = [data_file(each) for each in appended(actions)]

    def _begin_anew(self) -> None:
        super()._begin_anew()
        noted = (_source(actions) for actions in commits(self._files, self._folder, self.last))
        self.source, self._entries = next((each for each in noted if each is not None), -1), {}


def files_at(folder: str, version: int) -> list[DataFile]:
    """The files of the table in a folder at a version, in no order.

    Raises:
        VersionGone: nobody can say what the table was then.
    """
    try:
        actions = DeltaTable(folder, version=version).get_add_actions(flatten=False)
    except DeltaError as error:
        raise VersionGone(DELIVERIES.name, version, "its checkpoint") from error
    # Not `pa.table`: it loads pandas.
    files = pa.RecordBatchReader.from_stream(actions).read_all().to_pylist()
    return [DataFile(unquote(each["path"]), each.get("min") or {}, each.get("max") or {}) for each in files]


def _source(actions: Actions) -> int | None:
    """Up to which version of `redelivery` a commit of dispatch shows what was released; None: it does not say."""
    commit = note_of(actions)
    end = None if commit is None else commit.span[1]
    if end is None:
        return None
    # A stream ends before a version when it took no file of it.
    version, index = end
    return version if index >= 0 else version - 1

"""The tail of a table's log: version after version, each asked for by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.config.errors import VersionGone
from pipeline.delta.logs.entries import entry, exists
from pipeline.delta.logs.logfiles import first_version, log_files
from pipeline.storage.files import Files

Actions = list[dict[str, Any]]


class Tail:
    """Follows the log of one table.

    Attributes:
        folder: of the table.
        next: the version that comes next.
    """

    def __init__(self, files: Files, folder: str, following: int) -> None:
        """Stand before a version."""
        self.files, self.folder, self.next = files, folder, following

    def news(self) -> Iterator[tuple[int, Actions]]:
        """The versions that came since the last call, in order.

        Raises:
            VersionGone: the log begins behind the next one. An entry that is there all the same is somebody's who was
                too late.
            BrokenVersion: a version is empty or cut short.
        """
        if not exists(self.files, self.folder, max(0, self.next - 1)) and self.first() > self.next:
            raise VersionGone(self.folder.rpartition("/")[2], self.next, "_delta_log")
        while (actions := entry(self.files, self.folder, self.next)) is not None:
            self.next += 1
            yield self.next - 1, actions

    def first(self) -> int:
        """The version with which the log begins."""
        return first_version(log_files(self.files.names(f"{self.folder}/_delta_log")))

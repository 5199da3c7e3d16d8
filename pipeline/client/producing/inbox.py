"""The table `inbox` as one writer of this process appends to it: held open, so that an append reads no log."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pipeline.delta.deltars import LOG_STAYS, fitted, open_table, path_of
from pipeline.delta.logs.entries import entry
from pipeline.delta.logs.logfiles import info_of
from pipeline.storage.files import Files
from schemas import INBOX

MARK = "delayline.turn"
"""The name in a commit under which a turn of a writer is known."""
_RETRIES = 15


class Inbox:
    """Appends, and looks whether an append is in the log though its answer was lost."""

    def __init__(self, root: str) -> None:
        """Look at nothing yet."""
        self._root, self._files = root, Files()
        self._table: DeltaTable | None = None

    def stored(self, transaction: str) -> int:
        """The last version of an application transaction; -1 when there is none."""
        found = self._open().transaction_version(transaction)
        return -1 if found is None else found

    def append(self, rows: pa.Table, mark: str, transactions: Mapping[str, int]) -> int:
        """Append rows in one commit; give its version.

        Args:
            rows: in the columns of the contract.
            mark: by which `landed` finds the commit.
            transactions: versions of application transactions. When another commit has told of one of them since the
                table was opened, this one fails.

        Raises:
            ColumnGone: the table lacks a column of the rows.
        """
        table = self._open()
        properties = CommitProperties(
            custom_metadata={MARK: mark},
            max_commit_retries=_RETRIES,
            app_transactions=[Transaction(name, version) for name, version in transactions.items()],
        )
        rows = fitted(table, INBOX, rows)
        write_deltalake(table, rows, mode="append", commit_properties=properties, post_commithook_properties=LOG_STAYS)
        return table.version()

    def reopened_unless(self, mark: str) -> int | None:
        """The version with a mark, looked for among those since the last append; without one open the table anew."""
        if self._table is not None:
            version, folder = self._table.version(), path_of(self._root, INBOX)
            while (actions := entry(self._files, folder, version)) is not None:
                if info_of(actions).get(MARK) == mark:
                    return version
                version += 1
            self._table = None
        self._open()
        return None

    def _open(self) -> DeltaTable:
        if self._table is None:
            self._table = open_table(self._root, INBOX)
        return self._table

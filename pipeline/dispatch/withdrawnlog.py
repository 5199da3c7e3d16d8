"""What commands withdraw, and newer messages replace, as dispatch follows it.

It looks at `commands` and `replaced` once for each batch (decisions 0057, 0145).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from pipeline.config.stages import DISPATCH
from pipeline.delta.checkpoints import Offset
from pipeline.delta.logs.entries import appended, commits, newest, note_of
from pipeline.delta.reading.files import read_files
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.core.withdrawn import Withdrawn
from pipeline.dispatch.release import taken_apart
from pipeline.storage.arrays import arrow_schema, completed
from pipeline.subscriptions.commandlog import CommandLog
from pipeline.subscriptions.commands import withdrawals
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.replacedlog import ReplacedLog
from pipeline.subscriptions.replacedrows import of_lives
from schemas import REJECTED_DISPATCH, WAS_REPLACED
from state.retry import MAX_ROUND
from state.withdrawals import Span, Withdrawals

NOBODY: Mapping[Name, int] = {}
"""No life of any subscription."""


class WithdrawnLog:
    """What `commands` withdraw, and what newer messages replaced, followed from the first question on."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._log, self._said, self._known = CommandLog(warehouse), Withdrawals(), Withdrawn()
        self._replaced = ReplacedLog(warehouse)

    def look(self, lives: Mapping[Name, int] = NOBODY) -> Withdrawn:
        """What is withdrawn as of the newest versions. While nothing is, that is a look at two logs.

        Of rows that came since the last time the cost is that of these rows: there may be millions of older ones.

        Args:
            lives: the present life of each subscription: a message is replaced for all of them.
        """
        seen = self._log.look()
        if seen.version != self._known.version:
            if seen.anew:
                self._said = Withdrawals()
            if seen.rows.num_rows:
                self._said.follow(withdrawals(seen.rows))
            self._known = Withdrawn(seen.version, self._said.left_out())
        parts = of_lives(self._replaced.look(), lives)
        # All of its rounds, whatever gave it another due time.
        spans = {Span(of, 0, MAX_ROUND + 1, moved=False): positions for of, positions in parts.items()}
        return replace(self._known, others={WAS_REPLACED: spans}) if spans else self._known


def said(warehouse: Warehouse, owner: str, batch: int, after: Offset) -> Withdrawn:
    """What dispatch left out of `redelivery` behind a place, by the files that its commits added, whatever came since.

    For a batch that is repeated that is its own commit, also when it took nothing of `redelivery` but what was held.
    When notes of batches are lost, one batch stands for several.
    """
    files, path = warehouse.files, warehouse.path(REJECTED_DISPATCH)
    added: list[str] = []
    for actions in commits(files, path, newest(files, path)):
        noted = note_of(actions)
        if noted is None or noted.stage != DISPATCH:
            continue
        if tuple(noted.note["source"]) <= after and (noted.owner, noted.batch) != (owner, batch):
            break
        added += [each["path"] for each in appended(actions)]
    rows = arrow_schema(REJECTED_DISPATCH.columns).empty_table()
    rows = read_files(warehouse, REJECTED_DISPATCH, added) if added else rows
    return Withdrawn.of_rows(rows)


def withdrawn_rows(gone: pa.Table, batch_id: int, most: int) -> pa.Table:
    """Rows of `rejected_dispatch` for runs that were withdrawn.

    Raises:
        NotInDriver: they are more than `most` positions.
    """
    run, entry = taken_apart(gone, most)
    schema, rows = arrow_schema(REJECTED_DISPATCH.columns), gone.drop_columns("batch_id").take(pa.array(run))
    columns = {name: rows.column(name) for name in schema.names if name in rows.column_names}
    columns |= {"rejected_at": rows.column("released_at"), "entry_id": pa.array(entry)}
    return completed(schema, columns, {"batch_id": batch_id}, len(run))

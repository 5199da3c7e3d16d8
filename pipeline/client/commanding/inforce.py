"""Rows of `commands`, read without Spark, and what is withdrawn by them at present."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import arrow_of, open_table
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commands import READ, withdrawals
from schemas import COMMANDS
from state.withdrawals import Parts


def rows(root: str, columns: Sequence[str], where: str = "true") -> pa.Table:
    """Columns of the rows of `commands` that meet a condition.

    A warehouse that an earlier version of this project made has no such table, and none.
    """
    schema = arrow_schema(COMMANDS.columns)
    wanted = pa.schema([schema.field(name) for name in columns])
    try:
        opened = open_table(root, COMMANDS)
    except NoWarehouse:
        return wanted.empty_table()
    # DataFusion gives views of texts.
    text = f"SELECT {', '.join(columns)} FROM commands WHERE {where}"  # noqa: S608 - our own words
    return arrow_of(text, commands=opened).cast(wanted)


def in_force(root: str, where: str = "true") -> Parts:
    """The positions that are withdrawn by the rows that meet a condition, also those that dispatch had taken before."""
    found = rows(root, READ, where)
    return withdrawals(found).in_force() if found.num_rows else {}

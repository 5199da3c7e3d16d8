"""Claims: of all processes that want a folder one gets it, wherever it lies, and no Spark is needed.

On this machine a folder is made once. A store puts an object where none is, and of the clients here delta-rs is the one
that asks for that: when it adds the first version of a table. So a claim in a store is a table without rows.
"""

from __future__ import annotations

from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from pipeline.delta.logs.entries import exists
from pipeline.storage.files import Files
from schemas import SUBSCRIPTIONS


def claim(files: Files, folder: str) -> bool:
    """Take a folder that nobody has taken; whether this call did.

    It is False as well when this call did, and the answer of the store got lost: then nobody has it.

    Raises:
        DeltaError, OSError: the store does not answer, or refuses.
    """
    here = files.local(folder)
    return _made(here) if here is not None else _created(files, folder)


def _made(folder: Path) -> bool:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _created(files: Files, folder: str) -> bool:
    schema = Schema.from_json(SUBSCRIPTIONS.columns.json())
    try:
        # With retries the table would be made once more, in the next version.
        DeltaTable.create(folder, schema, commit_properties=CommitProperties(max_commit_retries=0))
    except DeltaError:
        if not exists(files, folder, 0):
            raise
        return False
    return True

"""Tables opened by delta-rs while others commit to them."""

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

_LOOKS = 4


def table_at(folder: str, version: int | None = None) -> DeltaTable:
    """A table as it is now, or as of a version.

    delta-rs lists the log first. A list that is made in the middle of a commit may hold the checksum of a version and
    not its entry, and that is an error to delta-rs. The next list has the entry: so a table is looked at some times.

    Raises:
        TableNotFoundError: there is no table in the folder.
        DeltaError: it could not be read any time.
    """
    for _ in range(_LOOKS - 1):
        try:
            return DeltaTable(folder, version=version)
        except TableNotFoundError:
            raise
        except DeltaError:
            continue
    return DeltaTable(folder, version=version)

"""What a client refuses, and why."""

from collections.abc import Sequence

from pipeline.errors import PipelineError


class NoWarehouse(PipelineError):
    """A folder does not hold the table that was asked for. Name another folder, or run `delayline init`."""

    def __init__(self, root: str, table: str) -> None:
        """Name the folder and the table."""
        super().__init__(
            f"warehouse = {root!r} has no table {table!r}; make it with: delayline init --warehouse {root}"
        )
        self.root, self.table = root, table


class StillConflicting(PipelineError):
    """Other writers took every version that was tried; nothing was written. Try again when they are less busy."""

    def __init__(self, table: str, attempts: int) -> None:
        """Name the table and the number of attempts."""
        super().__init__(f"{table}: another writer was faster {attempts} times in a row, nothing was written")
        self.table, self.attempts = table, attempts


class AlreadySubscribed(PipelineError):
    """The topic has an active subscription of that name with other settings. Choose another name."""

    def __init__(self, topic: str, subscription: str, found: str) -> None:
        """Name the subscription and how it is registered."""
        super().__init__(f"subscription {subscription!r} of topic {topic!r} exists with {found}")
        self.topic, self.subscription, self.found = topic, subscription, found


class VersionGone(PipelineError):
    """A version of a table can no longer be read: its log entry or a file of it was removed. Read from a later one."""

    def __init__(self, table: str, version: int, part: str) -> None:
        """Name the table, the version and what is missing."""
        super().__init__(f"{table}: version {version} cannot be read any more ({part} was removed)")
        self.table, self.version, self.part = table, version, part


class ColumnGone(PipelineError):
    """Somebody dropped or renamed a column that is to be written; nothing was written. Bring the column back."""

    def __init__(self, table: str, column: str, found: Sequence[str]) -> None:
        """Name the table, the column, and the columns that the table has."""
        super().__init__(f"{table}: there is no column {column!r}, found: {', '.join(found)}")
        self.table, self.column, self.found = table, column, found


class BadValue(PipelineError):
    """A field of a message or of a subscription cannot be as it is; nothing was written. Correct it."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        """Name the field, its value and what is allowed."""
        super().__init__(f"{field} = {value!r}, allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


def check_text(field: str, value: str | None) -> None:
    """Refuse a text that UTF-8 cannot hold: half of a surrogate pair, or bytes of a command line that are no UTF-8.

    Raises:
        BadValue: it is one.
    """
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise BadValue(field, value, "text that UTF-8 can hold") from error

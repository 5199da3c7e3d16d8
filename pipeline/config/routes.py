"""Who works on a batch: the driver with arrays, or Spark."""

DRIVER = "driver"
"""Who works on a batch that is small enough."""
SETTING, PLACE, SIZE, FORM = "setting", "place", "size", "form"
"""Why Spark has to work on a batch: `driver_rows` is 0; it alone reaches the tables; there is too much; the files are
not what the table says, or nobody can tell how large their rows are."""


class NotInDriver(Exception):
    """The tables cannot be read in the driver, or the batch is too large for it: Spark does the same with it."""

    def __init__(self, reason: str = FORM) -> None:
        """Say why: `SETTING`, `PLACE`, `SIZE` or `FORM`."""
        super().__init__(reason)
        self.reason = reason


class SessionNeeded(RuntimeError):
    """Only Spark can do it, and the warehouse has no session."""


class FileTooLarge(Exception):
    """A file of a table to which anybody may append holds more than may be held; its rows are passed over."""

    def __init__(self, path: str, most: str) -> None:
        super().__init__(f"{path}: allowed: {most}")
        self.path, self.most = path, most

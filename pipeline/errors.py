"""What a stage refuses, and why. One root, short children; messages name field, value and allowed range."""

from state import DelaylineError


class PipelineError(DelaylineError):
    """Root of all errors that the pipeline raises on purpose."""


class BadSetting(PipelineError):
    """A setting is outside its range. Correct it and start again."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        """Name the setting, its value and the range that is allowed."""
        super().__init__(f"{field} = {value!r}, allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class ForeignOwner(PipelineError):
    """The stage's tables were last written from another checkpoint.

    Either start with that checkpoint, or rebuild the stage and tell it to take over.
    """

    def __init__(self, stage: str, table: str, found: str, ours: str | None) -> None:
        """Name the stage, the table, the owner found in its log, and the one that asked (None: a new checkpoint)."""
        super().__init__(f"stage {stage}: {table} was last written by {found}, this checkpoint is {ours or 'new'}")
        self.stage, self.table, self.found, self.ours = stage, table, found, ours


class CheckpointBehind(PipelineError):
    """A table holds a later batch than the checkpoint asks for: the checkpoint was set back or restored.

    Its batches would be written again under other ids. Rebuild the stage on a new checkpoint.
    """

    def __init__(self, stage: str, table: str, held: int, asked: int) -> None:
        """Name the stage, the table, the batch that the table holds, and the one that was to be written."""
        super().__init__(f"stage {stage}: {table} holds batch {held}, the checkpoint is at {asked}")
        self.stage, self.table, self.held, self.asked = stage, table, held, asked


class StageRunning(PipelineError):
    """Another process runs this stage on this warehouse. Stop it first."""

    def __init__(self, stage: str, holder: str) -> None:
        """Name the stage and who holds it."""
        super().__init__(f"stage {stage} is already running ({holder})")
        self.stage, self.holder = stage, holder


class ClockJumped(PipelineError):
    """The wall clock of a running process moved away from its monotonic clock.

    Nothing was released on the strength of it. Check the machine's time, then start again: the way to the new time
    is paced.
    """

    def __init__(self, jump_ms: int, max_jump_ms: int) -> None:
        """Name the jump and what is tolerated, in ms."""
        super().__init__(f"wall clock jumped by {jump_ms} ms, allowed: {max_jump_ms} ms")
        self.jump_ms, self.max_jump_ms = jump_ms, max_jump_ms


class ContractBroken(PipelineError):
    """A stage was about to commit NULL in a column that its table requires. It did not; the defect is ours."""

    def __init__(self, table: str, column: str, rows: int) -> None:
        """Name the table, the column, and how many rows of a file hold NULL."""
        super().__init__(f"{table}.{column}: NULL in {rows} rows, allowed: none")
        self.table, self.column, self.rows = table, column, rows


class UnknownTableFeature(PipelineError):
    """Somebody changed a table of a stage so that what the stage writes would not be right any more.

    Take the feature off the table, or drop the table's partitions, and start again.
    """

    def __init__(self, table: str, found: object, allowed: str) -> None:
        """Name the table, what its log asks of writers, and what we know."""
        super().__init__(f"{table}: the table asks for {found}, allowed: {allowed}")
        self.table, self.found, self.allowed = table, found, allowed


class InboxColumn(PipelineError):
    """A producer dropped or renamed a column of `inbox`, or changed its type. Nothing was taken in since.

    Bring the column back with its type, most simply by `RESTORE TABLE` to the version before, then start again. What
    was appended since is lost with it and has to be appended once more.
    """

    def __init__(self, column: str, found: str | None, allowed: str) -> None:
        """Name the column, its type (None: it is gone), and the one that it must have."""
        told = "is gone" if found is None else f"has type {found}"
        super().__init__(f"inbox: column {column} {told}, allowed: type {allowed}")
        self.column, self.found, self.allowed = column, found, allowed


class MemoryEnded(PipelineError):
    """Memory ended, or somebody ended Spark's JVM, in the middle of a batch. Nothing is lost; a start repeats it.

    Raise `session.memory` in the profile (`--driver-memory` of spark-submit), or give the machine more; or append the
    rows of the named files anew in smaller files, with fewer of their rows in a row group.
    """

    def __init__(self, stage: str, what: str, files: str | None, memory: str) -> None:
        """Name the stage, what ended, the files of its batch (None: it was at none), and the memory of the driver."""
        at = f"at {files}" if files else "between two batches"
        super().__init__(f"stage {stage}: {what} {at}; session.memory = {memory}, allowed: more")
        self.stage, self.what, self.files, self.memory = stage, what, files, memory


class PreparedFileGone(PipelineError):
    """A file of prepared deliveries is gone: a VACUUM kept files for a shorter time than dispatch stood still.

    Nothing was made visible. Bring the file back from a copy.
    """

    def __init__(self, batch: int, source: tuple[int, int], path: str) -> None:
        """Name the batch, where it ends in `redelivery` (version, index), and the file."""
        super().__init__(f"deliveries: {path} of prepared batch {batch} (redelivery up to {source}) is gone")
        self.batch, self.source, self.path = batch, source, path

"""What a stage refuses, and why. One root, short children; messages name field, value and allowed range."""

from collections.abc import Sequence
from shlex import join

from pipeline.config.spelling import aside_ms, command_line, iso_text, shown, subscription_options
from pipeline.config.stages import ALL_STAGES
from state import DelaylineError


class PipelineError(DelaylineError):
    """Root of all errors that the pipeline raises on purpose."""


class NotAllowed(PipelineError, ValueError):
    """Root of those that name a field, its value and what is allowed; as a `ValueError` they are caught, too."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} = {shown(value)}{aside_ms(field, value)}, allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class BadSetting(NotAllowed):
    """A setting is outside its range. Correct it and start again."""


class ForeignOwner(PipelineError):
    """The stage's tables were last written from another checkpoint.

    Either start with that checkpoint, or rebuild the stage and tell it to take over.
    """

    def __init__(self, stage: str, table: str, found: str, ours: str | None) -> None:
        super().__init__(
            f"stage {stage}: {table} was last written by {found}, this checkpoint is {ours or 'new'}; "
            f"take over with: delayline rebuild --stage {stage}"
        )
        self.stage, self.table, self.found, self.ours = stage, table, found, ours


class CheckpointBehind(PipelineError):
    """A table holds a later batch than the checkpoint asks for: the checkpoint was set back or restored.

    Its batches would be written again under other ids. Rebuild the stage on a new checkpoint.
    """

    def __init__(self, stage: str, table: str, held: int, asked: int) -> None:
        super().__init__(
            f"stage {stage}: {table} holds batch {held}, the checkpoint is at {asked}; "
            f"go on from the tables with: delayline rebuild --stage {stage}"
        )
        self.stage, self.table, self.held, self.asked = stage, table, held, asked


class BatchDiffers(PipelineError):
    """A table holds a batch that is not the one that the checkpoint has under its number.

    The checkpoint was copied while the stage ran, restored, or lost its last entries in a power cut. Rebuild the stage.
    """

    def __init__(self, stage: str, table: str, batch: int, noted: object, logged: object) -> None:
        super().__init__(
            f"stage {stage}: {table} holds batch {batch} of {noted}, the checkpoint has {logged} under this number; "
            f"go on from the tables with: delayline rebuild --stage {stage}"
        )
        self.stage, self.table, self.batch, self.noted, self.logged = stage, table, batch, noted, logged


class TableBehind(PipelineError):
    """A table lacks a batch that the checkpoint remembers to have written: the table was set back or restored.

    Rebuild the stage: it goes on from what the table holds.
    """

    def __init__(self, stage: str, table: str, held: int, written: int) -> None:
        super().__init__(
            f"stage {stage}: {table} holds batch {held}, the checkpoint has written batch {written}; "
            f"go on from the tables with: delayline rebuild --stage {stage}"
        )
        self.stage, self.table, self.held, self.written = stage, table, held, written


class SourceBehind(PipelineError):
    """A table ends before the place up to which a stage has read it: the table was set back or restored.

    What it lacks would count as read when it comes again. Restore all tables and checkpoints from one copy.
    """

    def __init__(self, stage: str, table: str, newest: int, read: int) -> None:
        super().__init__(
            f"stage {stage}: {table} ends with version {newest}, the stage has read version {read}; "
            "restore all tables and checkpoints from one copy (docs/operations.md)"
        )
        self.stage, self.table, self.newest, self.read = stage, table, newest, read


class ClockAhead(PipelineError):
    """The last run of a stage was at a time that is still to come: its clock was wrong, or it replayed the future.

    Correct the machine's clock if it is wrong now, wait for that time, or begin at the present time: rebuild all stages
    with `--reset-clock`.
    """

    def __init__(self, stage: str, instant: int, wall: int, allowed: int) -> None:
        """Name the stage, its last instant, the wall clock, and by how much it may be ahead; all in ms."""
        at, now = iso_text(instant, "seconds"), iso_text(wall, "seconds")
        ahead = f"{allowed} ms{aside_ms('allowed_ms', allowed)} ahead"
        super().__init__(
            f"stage {stage}: its clock stands at {at}, the machine's at {now}, allowed: "
            f"{ahead}; begin at the present time with: delayline rebuild --stage all --reset-clock"
        )
        self.stage, self.instant, self.wall, self.allowed = stage, instant, wall, allowed


class StageRunning(PipelineError):
    """Another process runs this stage on this warehouse. Stop it first."""

    def __init__(self, stage: str, holder: str, root: str | None = None) -> None:
        stop = "stop it first" if root is None else f"stop it with: {command_line(root, 'stop')}"
        job = f"a job works on this warehouse already ({holder}); {stop}"
        super().__init__(job if stage in ALL_STAGES else f"{stage} is already running ({holder})")
        self.stage, self.holder = stage, holder


class ClockJumped(PipelineError):
    """The wall clock of a running process moved away from its monotonic clock.

    Nothing was released on the strength of it. Check the machine's time, then start again: the way to the new time
    is paced.
    """

    def __init__(self, jump_ms: int, max_jump_ms: int) -> None:
        super().__init__(f"wall clock jumped by {jump_ms} ms{aside_ms('jump_ms', jump_ms)}, allowed: {max_jump_ms} ms")
        self.jump_ms, self.max_jump_ms = jump_ms, max_jump_ms


class ContractBroken(PipelineError):
    """A stage was about to commit NULL in a column that its table requires. It did not; the defect is ours."""

    def __init__(self, table: str, column: str, rows: int) -> None:
        super().__init__(f"{table}.{column}: NULL in {rows} rows, allowed: none")
        self.table, self.column, self.rows = table, column, rows


class UnknownTableFeature(PipelineError):
    """Somebody changed a table of a stage so that what the stage writes would not be right any more.

    `delayline doctor` names the commands that take it off. Give them, and start again.
    """

    def __init__(self, table: str, found: object, allowed: str) -> None:
        super().__init__(f"{table}: the table asks for {found}, allowed: {allowed}; see delayline doctor")
        self.table, self.found, self.allowed = table, found, allowed


class InboxColumn(PipelineError):
    """A producer dropped or renamed a column of `inbox`, or changed its type. Nothing was taken in since.

    Give the `RESTORE TABLE` that `delayline doctor` names, then start again. What was appended since is lost with it
    and has to be appended once more.
    """

    def __init__(self, column: str, found: str | None, allowed: str) -> None:
        state = "is gone" if found is None else f"has type {found}"
        super().__init__(f"inbox: column {column} {state}, allowed: type {allowed}")
        self.column, self.found, self.allowed = column, found, allowed


class MemoryEnded(PipelineError):
    """Memory ended, or somebody ended Spark's JVM, in the middle of a batch. Nothing is lost; a start repeats it.

    Raise `session.memory` in the profile (`--driver-memory` of spark-submit), or give the machine more; or append the
    rows of the named files anew in smaller files, with fewer of their rows in a row group.
    """

    def __init__(self, stage: str, what: str, files: str | None, memory: str) -> None:
        at = f"at {files}" if files else "between two batches"
        super().__init__(f"stage {stage}: {what} {at}; session.memory = {memory}, allowed: more")
        self.stage, self.what, self.files, self.memory = stage, what, files, memory


_MOST = (1 << 63) - 1
_SETTLE_GOES_ON = "start settle, which writes it again"
_LOST_WITH = {
    "inbox": "send its messages again",
    "consumer_events": "acknowledge its messages again",
    "commands": "give its command again",
    "subscriptions": "give its command again before you start a stage",
    **dict.fromkeys(("cursors", "closed", "rejected_settle"), _SETTLE_GOES_ON),
}
"""What follows when the newest version of a table that no query writes is deleted."""


class BrokenVersion(PipelineError):
    """The log entry of a version is empty or cut short, as a power cut leaves a file that was not synced in time.

    Bring it back from a copy. Without one, when it is the newest version, delete it: the table is then what it was
    before. Rebuild the stage that writes the table, which goes on from there; settle does so when it starts. What a
    producer, a consumer or a user wrote with that version has to be written again.
    """

    def __init__(self, folder: str, version: int) -> None:
        table = folder.rstrip("/").rpartition("/")[2]
        entry = f"{folder}/_delta_log/{version:020d}.json"
        then = _LOST_WITH.get(table, "rebuild the stage that wrote it")
        super().__init__(
            f"{table}: version {version} is empty or cut short; bring {entry} back from a copy, "
            f"or, if it is the newest one, delete it and {then}"
        )
        self.table, self.version, self.entry = table, version, entry


class PreparedFileGone(PipelineError):
    """A file of prepared deliveries is gone: a VACUUM kept files for a shorter time than dispatch stood still.

    Nothing was made visible. Start dispatch again: it prepares anew what became due and is not visible yet.
    """

    def __init__(self, batch: int, source: tuple[int, int], path: str) -> None:
        super().__init__(
            f"deliveries: {path} of prepared batch {batch} (redelivery up to {source}) is gone; start dispatch again"
        )
        self.batch, self.source, self.path = batch, source, path


class NoFileSystem(PipelineError):
    """A path lies on a file system that this command does not reach. Run it where Spark is, or name another path."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"path = {path!r}, allowed here: a folder of this machine, or s3://, gs://, abfss:// with the keys in the "
            "environment"
        )
        self.path = path


class NoWarehouse(PipelineError):
    """A folder does not hold the table that was asked for, or is a file. Name another one, or run `delayline init`."""

    def __init__(self, root: str, table: str | None) -> None:
        lacks = f"has no table {table!r}; make it with: {command_line(root, 'init')}"
        # No warehouse can be made of a file.
        a_file = f"is a file, allowed: a folder; make one with: {command_line('FOLDER', 'init')}"
        super().__init__(f"warehouse = {root!r} {a_file if table is None else lacks}")
        self.root, self.table = root, table


class StillConflicting(PipelineError):
    """Other writers took every version that was tried; nothing was written. Try again when they are less busy."""

    def __init__(self, table: str, attempts: int) -> None:
        super().__init__(f"{table}: another writer was faster {attempts} times in a row, nothing was written")
        self.table, self.attempts = table, attempts


class AlreadySubscribed(PipelineError):
    """The topic has an active subscription of that name with other settings. Change it, end it, or name another one."""

    def __init__(self, topic: str, subscription: str, found: str, remedy: str = "choose another name") -> None:
        super().__init__(f"subscription {subscription!r} of topic {topic!r} exists with {found}; {remedy}")
        self.topic, self.subscription, self.found = topic, subscription, found


class VersionGone(PipelineError):
    """A version of a table can no longer be read: its log entry or a file of it was removed. Read from a later one."""

    def __init__(self, table: str, version: int, part: str) -> None:
        super().__init__(f"{table}: version {version} cannot be read any more ({part} was removed)")
        self.table, self.version, self.part = table, version, part


class ColumnGone(PipelineError):
    """Somebody dropped or renamed a column that is to be written; nothing was written. Bring the column back."""

    def __init__(self, table: str, column: str, found: Sequence[str]) -> None:
        super().__init__(f"{table}: there is no column {column!r}, found: {', '.join(found)}")
        self.table, self.column, self.found = table, column, found


class BadValue(NotAllowed):
    """A field of a message or of a subscription cannot be as it is; nothing was written. Correct it."""


def check_text(field: str, value: str | None) -> None:
    """Refuse what is no text, or none that UTF-8 can hold: half of a surrogate pair, or bytes of a command line.

    Raises:
        BadValue: it is one.
    """
    check_kind(field, value, (str, type(None)), "a text")
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise BadValue(field, value, "text that UTF-8 can hold") from error


def check_kind(field: str, value: object, kind: type | tuple[type, ...], allowed: str) -> None:
    """Refuse what is not of a kind: it would be an error of Python's own later, which names no field.

    Raises:
        BadValue: it is of another one.
    """
    if not isinstance(value, kind):
        raise BadValue(field, value, allowed)


def check_count(field: str, value: object) -> None:
    """Refuse what is no number of things.

    Raises:
        BadValue: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise BadValue(field, value, f"a whole number in 1..{_MOST}")


class SinkPlaceGone(PipelineError):
    """Nobody knows where a sink goes on. It stands still; the stages and other sinks go on.

    The broker forgot its place (its topic was deleted, or no process ran for longer than it keeps places), `deliveries`
    was set back, or the notes of what it has taken up are gone. Say where it begins:
    `delayline policy set --topic T --subscription S --sink-after VERSION`.
    """

    def __init__(self, topic: str, subscription: str, problem: str) -> None:
        named = join(subscription_options(topic, subscription))
        super().__init__(
            f"sink of ({topic!r}, {subscription!r}): {problem}; "
            f"say where it begins with: delayline policy set {named} --sink-after VERSION"
        )
        self.topic, self.subscription, self.problem = topic, subscription, problem


CLIENTS = {"kafka": "confluent-kafka>=2.16,<3", "pulsar": "pulsar-client>=3.13,<4"}
"""Packages that bring clients of brokers, by the extra that asks for them. delayline itself is in no package index."""


class NoBrokerClient(PipelineError):
    """A broker is named, and its client is not installed. A sink stands still then.

    Attributes:
        broker: the extra that brings it.
        package: what to install in the environment of the process.
    """

    def __init__(self, broker: str) -> None:
        package = CLIENTS[broker]
        super().__init__(
            f"the client of {broker.capitalize()} is not installed; install it with: pip install '{package}'"
        )
        self.broker, self.package = broker, package


class BrokerRefused(PipelineError):
    """A broker does not answer, or refuses; what it said is in the text. Nothing is lost: begin again."""


class CursorUnreadable(PipelineError):
    """What is open of a subscription cannot be read from `cursors`; settle does not start, and nothing was changed.

    Restore all tables from one copy, or unsubscribe and subscribe again: that begins anew with nothing open.
    """

    def __init__(self, topic: str, subscription: str, life: int, problem: str) -> None:
        super().__init__(
            f"cursors: what is open of ({topic!r}, {subscription!r}, {life}) cannot be read: {problem}; "
            f"restore all tables from one copy, or begin anew with: delayline unsubscribe, delayline subscribe"
        )
        self.topic, self.subscription, self.life, self.problem = topic, subscription, life, problem


class SourceAway(PipelineError):
    """The brokers of a source do not answer, or refuse. At a start correct the address, or start them."""

    def __init__(self, field: str, servers: str, reason: str) -> None:
        super().__init__(f"{field} = {servers!r}: no answer ({reason})")
        self.field, self.servers, self.reason = field, servers, reason


class NoSourceConnector(PipelineError):
    """Spark lacks the connector of a source. Name its package to spark-submit."""

    def __init__(self, field: str, package: str) -> None:
        super().__init__(f"{field}: Spark has no connector for it; start with --packages {package}")
        self.field, self.package = field, package


class SourcePlaceGone(PipelineError):
    """A source cannot go on where it was: what it follows is another one now, or was emptied.

    It would lose what it has not read, or take again what it has. Give it another name in the profile: then it begins
    as `start` says.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"source {source}: {problem}; give it another name, and it begins as its `start` says")
        self.source, self.problem = source, problem

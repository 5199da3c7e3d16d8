"""What may be chosen at a start. None of it may change the rows of a batch that is replayed."""

from dataclasses import dataclass

from pipeline.config.errors import BadSetting
from pipeline.config.paths import is_whole
from pipeline.config.spelling import range_text

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
FIRST_INSTANT_MS = -62_135_596_800_000
"""The first millisecond of the year 1, the beginning of what tables and their readers agree on."""
_LONGEST_MS = 36_600 * DAY_MS
LAST_INSTANT_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the end of what the index accepts."""
LONGEST_HORIZON_MS = 366 * DAY_MS
QUIET_VERSIONS = 20_000
"""A log of so many versions is listed in a tenth of a second."""
_ROW_BYTES = 256


@dataclass(frozen=True)
class Settings:
    """Settings of a run; durations in milliseconds, sizes in bytes.

    A start with a profile chooses some of them by rate and machine (`pipeline.config.sizing`) instead of these
    defaults.

    Attributes:
        horizon_ms: how far ahead positions are kept in the streaming state; what is due later waits in `messages`.
        max_delay_ms: a longer delay (`deliver_at - publish_time`) is rejected.
        max_payload_bytes: a larger payload is rejected.
        max_unfolded_bytes: a file of `inbox` whose texts come to more, and to more than a hundred times its size, is
            not taken. Equal texts are written once in a file, and once for each row in `messages`.
        entries_per_ledger: a ledger is closed, and the next one begun, when it holds so many entries.
        partitions: tasks that share a large sort of ingest or dispatch.
        rows_per_task: rows that one task sorts; with more of them another task takes part. Of what was held for paused
            subscriptions a batch of dispatch takes a quarter of so many.
        max_files: files of `inbox` or `segments` that one batch takes. Dispatch takes whole commits: the files of one
            release belong to one batch, or its order would be lost.
        max_bytes: bytes of files of `inbox` or `segments` that one batch takes. A larger file is a batch by itself.
        driver_rows: a batch of up to so many rows is worked on in the driver, without jobs, when it has no more than
            256 bytes for each of them and the driver reads the tables, on its disk or in an object store. A million
            small messages take about a gigabyte there. Positions are encoded there however many they are, but on a
            cluster, where executors encode what is more. With 0 Spark works on all rows.
        publish_ms: deliveries that are prepared ahead of their time become visible in steps of so many ms.
        express_ms: what is due within so many ms of when ingest takes it goes straight to dispatch, past the schedule.
            None: half the lookahead of a live clock, and nothing in a replay, where each instant is one release.
        guard_timeout_ms: an evaluation of a guard that takes longer has failed. Dispatch waits for it meanwhile.
        guard_bytes: memory that an evaluation of a guard may take. The process of guards dies of more, and the guard
            has failed.
        sync: data files, notes and versions are synced to the disk (fsync) before others may see them, where the tables
            lie on a disk of this machine. Without that a power cut may leave a version or a file empty.
        guard_tables: guards may read Delta tables in these folders and addresses, beside those in the folder
            `guard_tables` of the warehouse.
    """

    horizon_ms: int = HOUR_MS
    max_delay_ms: int = 3_650 * DAY_MS
    max_payload_bytes: int = 5 * 1024 * 1024
    max_unfolded_bytes: int = 512 << 20
    entries_per_ledger: int = 50_000
    partitions: int = 2
    rows_per_task: int = 100_000
    max_files: int = 10_000
    max_bytes: int = 32 << 20
    driver_rows: int = 1_000_000
    publish_ms: int = 250
    express_ms: int | None = None
    guard_timeout_ms: int = 10_000
    guard_bytes: int = 1 << 30
    sync: bool = True
    guard_tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that could not work."""
        check("horizon_ms", self.horizon_ms, 0, LONGEST_HORIZON_MS)
        check("max_delay_ms", self.max_delay_ms, 0, LAST_INSTANT_MS)
        check("max_payload_bytes", self.max_payload_bytes, 0, 1 << 30)
        check("max_unfolded_bytes", self.max_unfolded_bytes, 1 << 20, 1 << 50)
        check("entries_per_ledger", self.entries_per_ledger, 1, (1 << 31) - 1)
        check("partitions", self.partitions, 1, 100_000)
        check("rows_per_task", self.rows_per_task, 1, 1_000_000_000)
        check("max_files", self.max_files, 1, 1_000_000)
        check("max_bytes", self.max_bytes, 1, 1 << 40)
        check("driver_rows", self.driver_rows, 0, 10_000_000)
        check("publish_ms", self.publish_ms, 10, MINUTE_MS)
        if self.express_ms is not None:
            check("express_ms", self.express_ms, 0, DAY_MS)
        check("guard_timeout_ms", self.guard_timeout_ms, 100, HOUR_MS)
        check("guard_bytes", self.guard_bytes, 1 << 26, 1 << 40)
        if not isinstance(self.sync, bool):
            raise BadSetting("sync", self.sync, "true or false")
        # TOML has lists.
        object.__setattr__(self, "guard_tables", folders("guard_tables", self.guard_tables))

    @property
    def driver_bytes(self) -> int:
        """Rows that the driver holds at once, in bytes; they are copied once or twice on their way.

        A column of Arrow has no more than 2 GiB.
        """
        return min(self.driver_rows * _ROW_BYTES, 1 << 30)

    def tasks(self, rows: int) -> int:
        """How many tasks share the sort of so many rows."""
        return max(1, min(self.partitions, -(-rows // self.rows_per_task)))

    @property
    def held_rows(self) -> int:
        """Of what is held of paused subscriptions, a batch of dispatch takes so many: what is due at once waits for it.

        With 100,000 such batches took 0.7 to 0.9 s each, with a quarter 0.4 s (`python -m benchmarks.control pause`).
        """
        return max(1, self.rows_per_task // 4)

    def share(self, rows: int) -> int:
        """How many of so many rows each of them gets, at least one."""
        return max(1, -(-rows // self.tasks(rows)))


@dataclass(frozen=True)
class Upkeep:
    """What maintenance keeps; durations in milliseconds.

    Attributes:
        every_ms: pause between two rounds of maintenance.
        retain_ms: messages, and the rows that led to them, stay in the tables for so long after they were due, by
            application time.
        retain_deliveries_ms: the same for `deliveries` and `publications`, whose rows belong to their readers. They
            do not go before their messages; None: they stay.
        retain_dead_letters_ms: messages of dead-letter topics stay for so long, if that is longer than `retain_ms`,
            whether the topic has a subscription or not. A topic is one while a subscription sends dead letters there.
        retain_log_ms: the logs of `deliveries`, `publications` and `rejected_*` go back so far, by the wall clock. Who
            follows such a table by its log may be away for so long. A commit lists its log, on some storage all of it.
        quiet_ms: those logs stay so long all the same while that comes to no more than `QUIET_VERSIONS`.
        log_ms: the same for the other tables, which the stages follow: time for those who are reading just now. What
            no stage needs goes every minute, since Delta lists all of a log with each commit (decision 0021).
        files_ms: data files stay so much longer than the log entries that name them, and so long before they are named;
            the log of `inbox` says so long what was added. So an append to `inbox` may take so long.
        cluster_bytes: so much of `messages` is sorted anew in a round, where a release would open many files.
    """

    every_ms: int = 10 * MINUTE_MS
    retain_ms: int = 7 * DAY_MS
    retain_deliveries_ms: int | None = None
    retain_dead_letters_ms: int = 30 * DAY_MS
    retain_log_ms: int = 7 * DAY_MS
    quiet_ms: int = DAY_MS
    log_ms: int = 2 * MINUTE_MS
    files_ms: int = HOUR_MS
    cluster_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        """Refuse values that could not work."""
        check("every_ms", self.every_ms, SECOND_MS, DAY_MS)
        for name in ("retain_ms", "retain_dead_letters_ms", "retain_log_ms", "quiet_ms"):
            check(name, getattr(self, name), 0, _LONGEST_MS)
        check("log_ms", self.log_ms, 0, DAY_MS)
        check("files_ms", self.files_ms, 0, _LONGEST_MS)
        check("cluster_bytes", self.cluster_bytes, 0, 1 << 62)
        if self.retain_deliveries_ms is not None:
            check("retain_deliveries_ms", self.retain_deliveries_ms, 0, _LONGEST_MS)


@dataclass(frozen=True)
class LiveClock:
    """A clock that follows the wall clock; all in milliseconds.

    Attributes:
        lookahead_ms: the schedule runs so far ahead of the wall clock. What will be due is prepared meanwhile, and
            becomes visible when it is due: this hides the latency of the stages.
        max_step_ms: an instant is at most so far after the last one. This bounds how much becomes due at once on the
            way back after an outage.
        max_jump_ms: a running clock that jumps by more, either way, stops with `ClockJumped`.
        resolution_ms: instants are multiples of it, so that a fast trigger does not run a batch per millisecond.
    """

    lookahead_ms: int = 10_000
    max_step_ms: int = MINUTE_MS
    max_jump_ms: int = MINUTE_MS
    resolution_ms: int = 100

    def __post_init__(self) -> None:
        """Refuse values that could not work."""
        check("lookahead_ms", self.lookahead_ms, 0, DAY_MS)
        check("resolution_ms", self.resolution_ms, 1, MINUTE_MS)
        check("max_step_ms", self.max_step_ms, self.resolution_ms, 366 * DAY_MS)
        check("max_jump_ms", self.max_jump_ms, 1, 366 * DAY_MS)


@dataclass(frozen=True)
class VirtualClock:
    """A clock whose instants are given one by one (`pipeline.service.clock.advance`)."""


Clock = LiveClock | VirtualClock


def check(field: str, value: object, low: int, high: int) -> None:
    """Raise `BadSetting` unless a value is a whole number in a range, both ends included."""
    # To Python `True` is 1.
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadSetting(field, value, range_text(field, low, high))


def check_text(field: str, value: object) -> None:
    """Raise `BadSetting` unless a value is a text."""
    if not isinstance(value, str):
        raise BadSetting(field, value, "a text")


def folders(field: str, value: object) -> tuple[str, ...]:
    """Folders and addresses as a setting states them.

    Raises:
        BadSetting: it is no list of them, or one that begins nowhere.
    """
    allowed = 'a list of folders from the root on and addresses, as in ["/data/orders", "s3://bucket/orders"]'
    if not isinstance(value, list | tuple) or not all(is_whole(each) for each in value):
        raise BadSetting(field, value, allowed)
    return tuple(value)

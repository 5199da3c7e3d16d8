"""What a start of the stages needs beside a warehouse; and the seam through which stages tell what Spark does not tell.

Dispatch tells what became visible, and how late that was; settle, which is no query of Spark's, tells of its batches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from pipeline.config.errors import BadSetting
from pipeline.config.settings import Clock, Settings, Upkeep, check


@dataclass(frozen=True)
class Settled:
    """What a batch of settle did for a subscription, and what is open of it afterwards.

    Attributes:
        topic: its topic.
        subscription: its name.
        outstanding: messages that were released and are not settled.
        waiting: messages that failed and come again later.
        acked: messages that this batch settled because they were acknowledged.
        returned: messages that this batch put back, by cause: `nack`, `ack_timeout`, `owner_lost`.
        dead_letters: messages that this batch gave up.
    """

    topic: str
    subscription: str
    outstanding: int
    waiting: int
    acked: int
    returned: Mapping[str, int]
    dead_letters: int


@dataclass(frozen=True)
class SettleBatch:
    """A batch of settle.

    Attributes:
        number: of the batch.
        rows: rows of `consumer_events` that it read.
        begun_ms: when it began, ms UTC.
        ended_ms: when it ended, ms UTC.
        instant_ms: the instant that it stands for, ms UTC.
        version: the version of `consumer_events` up to which it has read.
        refused: events that it could not follow.
        subscriptions: those whose figures it changed; in the first batch of a process all of them.
        cpu_ms: processor time that it took, of the thread of settle.
    """

    number: int
    rows: int
    begun_ms: int
    ended_ms: int
    instant_ms: int
    version: int
    refused: int
    subscriptions: tuple[Settled, ...]
    cpu_ms: int = 0


@dataclass(frozen=True)
class Delivered:
    """What a commit made visible for a subscription.

    Attributes:
        topic: its topic.
        subscription: its name.
        count: deliveries, at least one.
        first_due_ms: the earliest due time among them, ms UTC.
        last_due_ms: the latest, ms UTC.
    """

    topic: str
    subscription: str
    count: int
    first_due_ms: int
    last_due_ms: int


class StageListener:
    """Who wants to know what the stages do; this one looks away.

    Its methods are called from the threads of the stages, so they answer at once and raise nothing.
    """

    def started(self, stage: str) -> None:
        """A stage that is no query of Spark's runs."""

    def ended(self, stage: str) -> None:
        """A stage that is no query of Spark's ended, whatever the reason."""

    def settled(self, batch: SettleBatch) -> None:
        """A batch of settle ended: what it did is in the tables."""

    def took(self, stage: str, rows: int) -> None:
        """A stage read rows of its source by itself, which Spark has not counted."""

    def routed(self, stage: str, way: str) -> None:
        """A batch with rows was worked on: in the `driver`, or by Spark for a reason (`pipeline.config.routes`)."""

    def rejected(self, reason: str, count: int) -> None:
        """Ingest rejected so many rows of the inbox, for a reason of `rejected_ingest`."""

    def unknown_zones(self, count: int) -> None:
        """Ingest took so many messages whose property for the window of their topic names no time zone."""

    def left_out(self, topic: str, subscription: str, reason: str, count: int) -> None:
        """Dispatch left so many messages out by a policy of the subscription, for a reason of `rejected_dispatch`."""

    def behind(self, source: str, rows: int | None) -> None:
        """A source has so many rows yet to read; None: nobody knows."""

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:
        """So long ago became visible what the sink of a subscription publishes next; 0: nothing; None: nobody knows."""

    def published(
        self, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int, shares: Sequence[Delivered] = ()
    ) -> None:
        """A commit made deliveries visible.

        Args:
            count: how many.
            first_due_ms: the earliest due time among them, ms UTC.
            last_due_ms: the latest, ms UTC.
            committed_ms: when the commit was there, ms UTC.
            shares: what each subscription has of them; empty: nobody knows it any more.
        """


NOBODY = StageListener()
"""Nobody watches."""


@dataclass(frozen=True)
class Watching:
    """How a process may be watched from outside; nothing of it is needed for its work.

    Attributes:
        metrics_port: Prometheus finds the metrics at this port; None: they are not served.
        metrics_address: an address of this machine at which they are served: 127.0.0.1 is for who is on the machine,
            0.0.0.0 is all addresses. They have names of topics, and how much passes.
        progress_log: file to which a line of JSON for each batch is appended; None: the Python logger
            `delayline.progress` alone has them.
    """

    metrics_port: int | None = None
    progress_log: str | None = None
    metrics_address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        """Refuse what is no port."""
        if self.metrics_port is not None:
            check("run.metrics_port", self.metrics_port, 1, 65_535)
        if not isinstance(self.metrics_address, str):
            raise BadSetting("run.metrics_address", self.metrics_address, "an IP address of this machine")
        try:
            ip_address(self.metrics_address)
        except ValueError as error:
            raise BadSetting("run.metrics_address", self.metrics_address, "an IP address of this machine") from error


OnStep = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is done, and how much there is; None: nobody knows."""
Observer = Callable[[str, int], None]
"""Told of each step of a batch: its name, as in `ingest.messages`, and the batch id. What it raises ends the query."""


def nobody(step: str, batch_id: int) -> None:
    """The observer that looks away."""


@dataclass(frozen=True)
class Options:
    """What a start of the stages needs beside the warehouse.

    Attributes:
        clock: live or virtual.
        settings: sizes and limits.
        trigger: pause between batches, as Spark writes intervals; None: a batch starts when there is something to do,
            and in an object store what others wrote is looked for every half second.
        upkeep: maintenance beside ingest; None: there is none.
        observe: told of each step.
        watch: told of what becomes visible.
    """

    clock: Clock
    settings: Settings = field(default_factory=Settings)
    trigger: str | None = None
    upkeep: Upkeep | None = None
    observe: Observer = nobody
    watch: StageListener = NOBODY

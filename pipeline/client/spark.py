"""A session of Spark for a program, and what the program says with a DataFrame, by one commit.

Deliveries are settled, messages are commanded. Only `session` loads Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, Unpack

import pyarrow as pa

from pipeline.client.commanding import commands
from pipeline.client.commanding.arguments import HowGiven
from pipeline.client.commanding.commands import Command
from pipeline.client.consuming import acknowledgingrows
from pipeline.client.consuming.acknowledgingrows import SETTLED_BY
from pipeline.client.options import spelled_out
from pipeline.config.extras import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(root: str = "", *, app: str = "delayline", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on this machine that reads and writes the tables of a warehouse; or the one that the program has.

    Delta is set up, with its JARs. Times are UTC, and the stack of the JVM is large enough for the end of a stream.

    Args:
        root: the warehouse, if it lies in an object store.
        app: the name of the application.
        settings: further settings of Spark, which win over these.

    Raises:
        ExtraMissing: Spark is not installed, a `ModuleNotFoundError` with one line: `pip install 'delayline[spark]'`.
    """
    need("spark", only="pyspark")
    need("spark", only="delta")
    from pipeline.config.session import program_session  # noqa: PLC0415 - clients work without Spark

    return program_session(app, root, extra=settings)


class Rows(Protocol):
    """A DataFrame of Spark."""

    def select(self, *names: str) -> Rows:
        """Some of its columns."""
        ...

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Its rows in the driver."""
        ...


def acknowledge(deliveries: Rows, root: str) -> int:
    """Say that deliveries are done with, in one commit; to say it twice changes nothing. Gives how many.

    The columns `SETTLED_BY` of the rows come into the driver: some 50 bytes a row. Spark may repeat the batch.

    Args:
        deliveries: rows of the table `deliveries`, of one subscription or of several.
        root: the warehouse, by a path that this process reaches without Spark.

    Raises:
        InvalidMessage: a column is NULL somewhere.
        NoWarehouse: the folder has no such table.
        StillConflicting: other writers were faster every time; nothing was said.
    """
    return acknowledgingrows.acknowledge(root, deliveries.select(*SETTLED_BY).toArrow())


def negative_acknowledge(deliveries: Rows, root: str, delay_ms: int | None = None) -> int:
    """Say that deliveries failed, in one commit: they come again. A delivery fails once. Gives how many.

    Args:
        deliveries: as in `acknowledge`.
        root: the same.
        delay_ms: after so long they come again; None: after the backoff of the subscription.

    Raises:
        InvalidMessage: a column is NULL somewhere.
        InvalidConfiguration: the delay is negative.
        NoWarehouse: the folder has no such table.
        StillConflicting: other writers were faster every time; nothing was said.
    """
    return acknowledgingrows.negative_acknowledge(root, deliveries.select(*SETTLED_BY).toArrow(), delay_ms)


@spelled_out(HowGiven)
def cancel(messages: Rows, root: str, topic: str, subscription: str | None = None, **how: Unpack[HowGiven]) -> Command:
    """Cancel messages that Spark has chosen: by joins with other tables, by the payload, by the ten million.

    The columns `ledger_id` and `entry_id` come into the driver, 16 bytes a row. What is not pending counts for nothing.

    Args:
        messages: rows of the table `messages`, with `ledger_id` and `entry_id`.
        root: the warehouse, by a path that this process reaches without Spark.
        topic: their topic; rows of another one count for nothing.
        subscription: for this one only; None: for all that the topic has now.
        **how: see `HowGiven`.

    Raises:
        NoWarehouse: the folder lacks a table.
        SubscriptionNotFound: there is no such subscription, or none at all.
        BadValue: a position is no whole number from 0 on; a text is not Unicode.
        StillConflicting: other writers were faster every time; nothing was written.
    """
    return commands.cancel(root, topic, subscription, positions=_places(messages), **how)


@spelled_out(HowGiven)
def reschedule(
    messages: Rows,
    root: str,
    topic: str,
    subscription: str | None = None,
    *,
    to: datetime | int,
    **how: Unpack[HowGiven],
) -> Command:
    """Give messages that Spark has chosen another due time, as `cancel` cancels them.

    Args:
        messages: as for `cancel`.
        root: the same.
        topic: the same.
        subscription: the same.
        to: when they are due; with its time zone, or ms since 1970.
        **how: see `HowGiven`.

    Raises:
        BadValue: as for `cancel`; or the time has no zone, or no clock shows it.
        NoWarehouse, SubscriptionNotFound, StillConflicting: as for `cancel`.
    """
    return commands.reschedule(root, topic, subscription, to=to, positions=_places(messages), **how)


@spelled_out(HowGiven)
def shift(
    messages: Rows, root: str, topic: str, subscription: str | None = None, *, span: timedelta, **how: Unpack[HowGiven]
) -> Command:
    """Let messages that Spark has chosen come later by a span of time, or earlier by a negative one.

    Args:
        messages: as for `cancel`.
        root: the same.
        topic: the same.
        subscription: the same.
        span: how much later, in whole milliseconds.
        **how: see `HowGiven`.

    Raises:
        BadValue: as for `cancel`; or the span is none, or leads beyond the year 9999.
        NoWarehouse, SubscriptionNotFound, StillConflicting: as for `cancel`.
    """
    return commands.shift(root, topic, subscription, span=span, positions=_places(messages), **how)


@spelled_out(HowGiven)
def release_now(
    messages: Rows, root: str, topic: str, subscription: str | None = None, **how: Unpack[HowGiven]
) -> Command:
    """Let messages that Spark has chosen come now.

    Args:
        messages: as for `cancel`.
        root: the same.
        topic: the same.
        subscription: the same.
        **how: see `HowGiven`.

    Raises:
        NoWarehouse, SubscriptionNotFound, BadValue, StillConflicting: as for `cancel`.
    """
    return commands.release_now(root, topic, subscription, positions=_places(messages), **how)


def _places(messages: Rows) -> pa.Table:
    return messages.select("ledger_id", "entry_id").toArrow()

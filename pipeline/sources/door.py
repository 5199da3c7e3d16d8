"""What a source is asked for: the door that each kind of outside system has, and what doors share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.config.errors import BadSetting, BadValue
from pipeline.config.sources import Source
from pipeline.delta.checkpoints import Checkpoint
from pipeline.storage.files import Files
from pipeline.subscriptions.destination import Destination

Place = Mapping[str, Any]
"""How far a source is read: the offset of Spark's stream, as JSON writes it."""
NOTHING_YET = "it has read nothing yet"
"""Why nobody knows how far a source is behind that has just begun."""
NO_PROPERTIES = "CAST(map() AS MAP<STRING, STRING>)"
"""Properties with nothing in them, in SQL."""


class Door(ABC):
    """An outside system. Each method may be called again after any of them has failed.

    Attributes:
        derived: SQL expressions over the columns of the stream, by the name of the column that each is for the
            profile's expressions.
        defaults: SQL expressions for columns of `inbox` that a profile does not state, over both.
        position: a SQL expression, a text that says to people where a row is in the source.
        lasting: whether the checkpoint of the query has to last, as a place does not say what was read.
        pause: between two looks for new rows, unless the profile states one for all.
    """

    derived: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    position: str
    lasting = False
    pause = "200 milliseconds"

    @abstractmethod
    def check(self, spark: SparkSession) -> None:
        """Ask whether it is there.

        Raises:
            BadSetting: the address is none, or has nothing to follow.
            SourceAway: nobody answers.
        """

    @abstractmethod
    def latest(self, spark: SparkSession) -> Place:
        """The place behind all that is there now.

        Raises:
            SourceAway: nobody answers.
        """

    @abstractmethod
    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:
        """The rows after a place, or from the first one (`after` is None), as one stream of Spark's.

        Raises:
            SourcePlaceGone: the place is of something else, or is not there any more.
        """

    def identity(self, spark: SparkSession) -> str | None:  # noqa: ARG002 - a door is asked with the session
        """What tells that which is followed now from another one of the same name; None: its places do.

        Raises:
            BadSetting, SourceAway: as `check`.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most doors keep none
        """Let go of connections; a later call makes new ones."""

    def taken(
        self,
        rows: DataFrame,
        begin: Place | None,  # noqa: ARG002 - who has more, or less, says so
        end: Place,  # noqa: ARG002 - as above
        checkpoint: Checkpoint,  # noqa: ARG002 - as above
    ) -> tuple[DataFrame, Sequence[str]]:
        """What is taken of a batch.

        Args:
            rows: of the stream; nothing of them is read yet.
            begin: the place where the batch begins; None: before everything.
            end: the place where it ends.
            checkpoint: of the query.

        Returns:
            The rows, or others; and what is left out, in words.
        """
        return rows, ()

    def tidy(self, files: Files, checkpoint: Checkpoint) -> None:  # noqa: B027 - who has one that lasts does
        """Let a checkpoint that lasts forget what cannot come again. No query runs; called at least once a day."""

    def count(self, begin: Place, end: Place) -> int | None:  # noqa: ARG002 - who knows it says so
        """How many rows lie between two places, at most; None: nobody knows."""
        return None

    @abstractmethod
    def behind(self, progress: Mapping[str, Any]) -> int | str:
        """How many rows are yet to be read, by what Spark says of the stream in a progress; or why nobody knows."""


def destination(source: Source) -> Destination:
    """The topic of a broker that an address names.

    Raises:
        BadSetting: it is none.
    """
    try:
        return Destination.parse(source.address)
    except BadValue as error:
        raise BadSetting(source.field("address"), error.value, error.allowed) from error


def first_line(error: Exception) -> str:
    """The first line of what Spark says: the rest is a plan."""
    return str(error).strip().partition("\n")[0]

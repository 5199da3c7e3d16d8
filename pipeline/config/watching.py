"""Watching a running pipeline: the seam through which dispatch tells what became visible, and how late that was."""

from dataclasses import dataclass

from pipeline.config.settings import check


class Watch:
    """Who wants to know what the stages do; this one looks away.

    Its methods are called from the threads of the stages, so they answer at once and raise nothing.
    """

    def took(self, stage: str, rows: int) -> None:
        """A stage read rows of its source by itself, which Spark has not counted."""

    def routed(self, stage: str, way: str) -> None:
        """A batch with rows was worked on: in the `driver`, or by Spark for a reason (`pipeline.storage.parquet`)."""

    def published(self, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int) -> None:
        """A commit made deliveries visible.

        Args:
            count: how many.
            first_due_ms: the earliest due time among them, ms UTC.
            last_due_ms: the latest, ms UTC.
            committed_ms: when the commit was there, ms UTC.
        """


NOBODY = Watch()
"""Nobody watches."""


@dataclass(frozen=True)
class Watching:
    """How a process may be watched from outside; nothing of it is needed for its work.

    Attributes:
        metrics_port: Prometheus finds the metrics at this port, on all addresses; None: they are not served.
        progress_log: file to which a line of JSON for each batch is appended; None: the Python logger
            `delayline.progress` alone has them.
    """

    metrics_port: int | None = None
    progress_log: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no port."""
        if self.metrics_port is not None:
            check("run.metrics_port", self.metrics_port, 1, 65_535)

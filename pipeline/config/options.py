"""What a start of the stages needs beside a warehouse."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.config.settings import Clock, Settings, Upkeep
from pipeline.config.watching import NOBODY, Watch

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
    watch: Watch = NOBODY

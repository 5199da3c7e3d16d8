"""What ingest takes at most, as a file of a warehouse: who sends is told at once, and not by a row that is refused."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.storage.files import Files
from pipeline.storage.notes import Notes

_NAME = "_limits"


@dataclass(frozen=True)
class Limits:
    """Settings of the job that runs, or that ran last.

    Attributes:
        max_payload_bytes: a larger payload is rejected.
        max_delay_ms: a longer delay is rejected.
    """

    max_payload_bytes: int
    max_delay_ms: int

    def put(self, files: Files, root: str) -> None:
        """Note them; each start of ingest does."""
        Notes(files, root, Limits).put(_NAME, self)


def limits_of(files: Files, root: str) -> Limits | None:
    """What ingest noted when it started last; None: no job has, or one of an earlier version."""
    return Notes(files, root, Limits).get(_NAME)

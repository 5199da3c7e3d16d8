"""What ingest takes at most, as a file of a warehouse: who sends is told at once, and not by a row that is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.storage.files import Files

_FILE = "_limits.json"


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
        files.write(f"{root}/{_FILE}", json.dumps(asdict(self)), lasting=False)


def limits_of(files: Files, root: str) -> Limits | None:
    """What ingest noted when it started last; None: no job has, or one of an earlier version."""
    text = files.text_if_there(f"{root}/{_FILE}")
    return None if text is None else Limits(**json.loads(text))

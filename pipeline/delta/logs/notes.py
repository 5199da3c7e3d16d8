"""What a stage notes in its commits. No Spark: whoever reads a log can read the notes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pipeline.delta.logs.entries import commits, metadata
from pipeline.delta.offsets import Offset
from pipeline.storage.files import Files


@dataclass(frozen=True)
class Commit:
    """What a stage noted in a commit of a table.

    Attributes:
        stage: the stage that wrote.
        owner: the identity of its checkpoint.
        batch: the batch of that checkpoint.
        note: what else the stage needs to finish or to repeat the batch.
    """

    stage: str
    owner: str
    batch: int
    note: Mapping[str, Any] = field(default_factory=dict)

    def dumps(self) -> str:
        """The commit's metadata."""
        return json.dumps({"stage": self.stage, "owner": self.owner, "batch": self.batch, "note": dict(self.note)})

    @property
    def span(self) -> tuple[Offset | None, Offset | None]:
        """Where the batch begins and ends in its source, as far as the note says."""
        begin, end = self.note.get("begin"), self.note.get("source")
        if end is None and "index" in self.note:
            end = self.note["version"], self.note["index"]
        return tuple(begin) if begin else None, tuple(end) if end else None

    @classmethod
    def loads(cls, text: str | None) -> "Commit | None":
        """The note in a commit's metadata; None when somebody else wrote the commit."""
        try:
            found = json.loads(text or "")
            return cls(str(found["stage"]), str(found["owner"]), int(found["batch"]), dict(found["note"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


def note_of(actions: Iterable[Mapping[str, Any]]) -> Commit | None:
    """What a stage noted in a version; None when somebody else made it."""
    return Commit.loads(metadata(actions))


def last_note(files: Files, path: str, stage: str, newest: int, after: int = -1) -> Commit | None:
    """The last commit of a stage to a table, after a version; None when there is none. Others' are passed over."""
    entries = islice(commits(files, path, newest), max(0, newest - after))
    notes = (note_of(actions) for actions in entries)
    return next((note for note in notes if note is not None and note.stage == stage), None)

"""Where a stage stands by its checkpoint folder, without Spark."""

import json
from functools import cached_property
from typing import Any

from pipeline.delta.checkpoints import ORIGIN, WRITTEN, Offset, Origin, Position, parse
from pipeline.storage.files import Files


class Standing:
    """The checkpoint of one stage. What changes while the stage runs is listed once, when this is made."""

    def __init__(self, root: str, stage: str) -> None:
        self.stage, self._files, self._folder = stage, Files(), f"{root}/_checkpoints/{stage}"
        self.origin = self._origin()
        # What is committed first: its offsets are there by then.
        self.committed = max(self._numbers("commits"), default=-1)
        self.batches = sorted(self._numbers("offsets"))
        # The last batch that each table is known to hold: no later than the tables are opened.
        self.written = {str(table): int(batch) for table, batch in (self._json(WRITTEN) or {}).items()}

    @cached_property
    def owner(self) -> str | None:
        """The identity of the query; None before its first start, and when it cannot be read."""
        metadata = self._json("metadata")
        return None if metadata is None else str(metadata.get("id"))

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint, or a rebuild has said where one begins."""
        return self.owner is not None or self.origin != Origin()

    @property
    def last(self) -> int:
        """The last batch that was begun; -1: none."""
        return self.batches[-1] if self.batches else -1

    def end(self, batch: int) -> Position | None:
        """The logged end of a batch; None when it has no entry that can be read."""
        if batch < 0:
            return self.origin.position
        text = self._text(f"offsets/{batch}") or ""
        try:
            # A version, metadata, at least one source.
            logged = parse(text) if text.count("\n") > 1 else None
        except (ValueError, KeyError, TypeError):
            return None
        if logged is None:
            return None
        version, index = max((logged.version, logged.index), (self.origin.version, self.origin.index))
        return Position(logged.instant, version, index)

    def place(self, batch: int) -> Offset | None:
        """The logged end of a batch as a place in the source; None when it has no entry that can be read."""
        end = self.end(batch)
        return None if end is None else (end.version, end.index)

    def watermark(self, batch: int) -> int:
        """The instant up to which a batch of the schedule releases, ms UTC; 0 when it is not known."""
        lines = (self._text(f"offsets/{batch}") or "").splitlines()
        try:
            return int(json.loads(lines[1]).get("batchWatermarkMs", 0))
        except (IndexError, ValueError):
            return 0

    def _origin(self) -> Origin:
        try:
            return Origin.loads(self._text(ORIGIN) or "")
        except (ValueError, KeyError, TypeError):
            return Origin()

    def _numbers(self, folder: str) -> set[int]:
        return {int(name) for name in self._files.names(f"{self._folder}/{folder}") if name.isdigit()}

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._text(name) or "")
        except ValueError:
            return None
        return found

    def _text(self, name: str) -> str | None:
        return self._files.text_if_there(f"{self._folder}/{name}")

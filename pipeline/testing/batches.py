"""The checkpoint of a stage without a JVM: the files that Spark writes, and which batch is to be done next."""

from __future__ import annotations

import json
from uuid import uuid4

from pipeline.delta.checkpoints import Checkpoint, Position
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files


class Batches(Checkpoint):
    """The checkpoint of a stage, in the files that Spark writes, and which batch is to be done next."""

    def __init__(self, warehouse: Warehouse, stage: str) -> None:
        """Read the folder, if it is there."""
        super().__init__(Files(), warehouse.checkpoint(stage))
        self._planned, self._done = self.batches().stop, self.done

    @property
    def next(self) -> int:
        """The number of the batch that is to be done, or that died."""
        return 0 if self._done is None else self._done + 1

    @property
    def died(self) -> bool:
        """Whether that one was begun."""
        return self.next < self._planned

    def plan(self, end: Position, watermark: int | None = None) -> None:
        """Log where the next batch ends; its watermark is its instant, if nothing is said."""
        if self.owner is None:
            self.put("metadata", json.dumps({"id": str(uuid4())}))
        metadata = {"batchWatermarkMs": end.instant if watermark is None else watermark}
        place = {"reservoirVersion": end.version, "index": end.index}
        self.put(
            f"offsets/{self.next}", "\n".join(["v1", *map(json.dumps, (metadata, {"instant": end.instant}, place))])
        )
        self._planned = self.next + 1

    def commit(self) -> None:
        """Log that the batch is done."""
        self.put(f"commits/{self.next}", "v1\n{}")
        self._done = self.next

    def put(self, name: str, content: str) -> None:
        """Write a file of the checkpoint."""
        self._files.write(f"{self.path}/{name}", content, lasting=False)

"""Which life of a subscription is the present one, for the stage that hands over.

Ingest decides when a life begins or ends, and says so in marker rows of `segments`. Those change only after the
registry has; so they are looked at when the registry has moved, until ingest has seen it move, and not otherwise.
"""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from pipeline import ingest
from pipeline.deltalog import newest
from pipeline.files import Files
from pipeline.lives import Name, alive
from pipeline.markers import lives_of
from pipeline.sinks import last_commit
from pipeline.tables import Warehouse
from schemas import SEGMENTS


class Presence:
    """The lives that markers tell of, as of a version of `segments`."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._warehouse, self._files = spark, warehouse, Files(spark)
        self._settled = (-1, -1)
        self._known: tuple[int, dict[Name, int]] = (-1, {})

    def version(self, registry: int) -> int:
        """A version of `segments` that holds what ingest had said of a version of the registry by now."""
        settled, version = self._settled
        if registry <= settled:
            return version
        # The commit first: what it and those before it say is then part of the version.
        last = last_commit(self._spark, self._warehouse.path(SEGMENTS), ingest.STAGE)
        version = newest(self._files, self._warehouse.path(SEGMENTS))
        if last is not None:
            self._settled = (int(last.note["registry"]), version)
        return version

    def at(self, version: int, registered: Mapping[Name, object]) -> dict[Name, int]:
        """The number of the present life of each registered subscription that ingest knows, at a version."""
        if self._known[0] != version:
            lives = alive(lives_of(self._warehouse.read(self._spark, SEGMENTS, version)))
            self._known = (version, {name: life.number for name, life in lives.items()})
        return {name: number for name, number in self._known[1].items() if name in registered}

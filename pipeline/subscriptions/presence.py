"""Which life of a subscription is the present one, for the stage that hands over.

Ingest decides when a life begins or ends, and says so in marker rows of `segments`. Those change only after the
registry has; so they are looked at when the registry has moved, until ingest has seen it move, and not otherwise.
"""

from collections.abc import Mapping

from pipeline.config.stages import INGEST
from pipeline.delta.logs.entries import Commit, newest
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from pipeline.subscriptions.markers import Markers
from schemas import SEGMENTS


class PresentIncarnations:
    """The lives that markers tell of, up to a marker. Who left long ago is forgotten, and asked for by nobody."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._warehouse = warehouse
        self._markers = Markers(warehouse)
        self._settled, self._seen = (-1, -1), -1
        self._last: Commit | None = None
        self._known: tuple[int, dict[Name, Incarnation]] = (-1, {})

    def marker(self, registry: int) -> int:
        """The number of the marker up to which ingest had said something of a version of the registry by now."""
        settled, marker = self._settled
        if registry <= settled:
            return marker
        # The commit first: what it and those before it say is then among the markers.
        last = self._last_of_ingest()
        marker, _, _ = self._markers.top()
        if last is not None:
            self._settled = (int(last.note["registry"]), marker)
        return marker

    def _last_of_ingest(self) -> Commit | None:
        """Settle writes to the table, too: what was passed over once is not looked at again."""
        seen, self._seen = self._seen, newest(self._warehouse.files, self._warehouse.path(SEGMENTS))
        self._last = last_commit(self._warehouse, SEGMENTS, INGEST, seen) or self._last
        return self._last

    def at(self, marker: int, registered: Mapping[Name, object]) -> dict[Name, int]:
        """The number of the present life of each registered subscription that ingest knows, up to a marker."""
        return {name: life.number for name, life in self.incarnations(marker).items() if name in registered}

    def incarnations(self, marker: int) -> Mapping[Name, Incarnation]:
        """The present life of each subscription that ingest knows, up to a marker."""
        if self._known[0] != marker:
            self._known = (marker, alive(self._markers.lives(marker)))
        return self._known[1]

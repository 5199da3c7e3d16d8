"""What a sink has taken up. It looks at the shelf and the log, and notes what it takes up before it gives it.

The log says all that ever becomes visible, so what was missed on the shelf is found there, and taken up then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any

from pipeline.client.tables.deliveries import Deliveries
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import commits
from pipeline.dispatch.prepared import PreparedStore, Visible, not_replaced
from pipeline.sinks.lots import DUE, Lot, Queue, lots_of, prepared_lots, visible_by
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import Epoch, LogPlace, Place, TakenUp, TurnPlace
from schemas import DELIVERIES


class DeliveryFetcher:
    """What is to be published for a subscription, from a place on.

    Attributes:
        queue: what is taken up, in the order in which it is published.
    """

    def __init__(
        self,
        root: str,
        wanted: Mapping[str, str],
        columns: Sequence[str],
        place: Place,
        passed: int,
        epoch: Epoch,
        left: Event,
    ) -> None:
        """Find again what an earlier one has taken up.

        Args:
            root: the warehouse.
            wanted: topic and subscription.
            columns: of a delivery.
            place: up to where it is published.
            passed: a turn that has passed, whatever the place says.
            epoch: where it is noted what is taken up.
            left: set when nobody waits for the sink any more: its notes may be those of another one by then.
        """
        self._wanted, self._columns = wanted, list(dict.fromkeys([*columns, DUE]))
        self._epoch, self._left, self._place = epoch, left, place
        found = epoch.taken_up()
        self._noted, self._taken = found is not None, found or TakenUp(place[0], place[0], place[1], place)
        self._free = max(place[0], passed, *self._taken.since.values()) + 1
        self._deliveries = Deliveries(root, begin=self._taken.version)
        self._store = PreparedStore(Files(), path_of(root, DELIVERIES))
        self.queue, self._lots, self._seen = Queue(self._read, place, passed), dict[int, Lot](), set[str]()
        self._visible = _visible(root, self._deliveries.newest)
        for lot in self._known(Deliveries(root, begin=self._taken.version)):
            lot.since = self._taken.since[lot.number]
            self._free = max(self._free, lot.after)
            self._lots[lot.number] = lot
            self.queue.add(lot)
        self._passed = max(place.turn if isinstance(place, TurnPlace) else 0, passed)

    @property
    def goes_on(self) -> bool:
        """Whether the log still has all that was read of it, and the notes all of which something was published."""
        if self._taken.read > self._deliveries.newest + 1:
            return False
        whole = len(self._lots) == len(self._taken.since)
        ends = (lot.last + 1 for lot in self._lots.values())
        return not self._passed or not whole or self._passed <= max(self._taken.place[0], *ends, 0)

    @property
    def place(self) -> Place:
        """Up to where it is published."""
        version = self.noted_version
        return self._place if isinstance(self._place, TurnPlace) else LogPlace(version, self._skip(version))

    @property
    def version(self) -> int:
        """The version of `deliveries` of which something is next."""
        open_ = (lot.version for lot in self._lots.values() if lot.version is not None and not self._is_done(lot))
        return min(open_, default=self._deliveries.next_version)

    @property
    def noted_version(self) -> int:
        """The version from which on the log is needed, by what is noted."""
        return self._taken.version if self._noted else self.version

    def look(self, now: int, most: int) -> None:
        """Take up what is new, at a time in ms UTC; when that is far more than so many rows, some of it.

        Raises:
            VersionGone, BrokenVersion: of the log.
        """
        found, count = list[Lot](), 0
        for version, actions in self._deliveries.commits():
            self._visible = visible_by(actions) or self._visible
            for lot in lots_of(version, actions, self._wanted, self._skip(version), self._lots):
                known = self._lots.get(lot.number)
                if known is not None:
                    known.version = version
                    continue
                found.append(lot)
                count += lot.count
            if count >= most:
                break
        else:
            # What a virtual clock releases is visible when it says so, whatever the wall clock says.
            found += [] if self._deliveries.virtual else self._prepared()
        self._take_up(found, now)

    def published(self, place: Place) -> None:
        """All up to a place is published."""
        self._place = place

    def tidy(self) -> None:
        """Note that earlier versions are not needed any more."""
        if self._noted and self._taken.version < self.version:
            self._note()

    def _take_up(self, lots: Sequence[Lot], now: int) -> None:
        for lot in lots:
            lot.since = max(now, self._free, self.queue.turn + 1)
            if lot.version is not None:
                # What is visible is due, whatever the clock says.
                lot.since = max(lot.since, lot.span[1])
            self._free = lot.after
            self._lots[lot.number] = lot
            self.queue.add(lot)
        if lots:
            self._note()

    def _note(self) -> None:
        """Write down what is taken up.

        Raises:
            OSError: another process has begun to publish; the next connection begins with what that one has noted.
                Or nobody waits for the sink any more, and it publishes nothing of what it has found.
        """
        if self._left.is_set():
            raise OSError("the sink has ended")
        if self._epoch.is_over:
            raise OSError("another process publishes for the sink")
        version = self.version
        self._lots = {
            number: lot
            for number, lot in self._lots.items()
            if lot.version is None or lot.version >= version or not self._is_done(lot)
        }
        since = {number: lot.since for number, lot in self._lots.items()}
        skip = self._skip(version)
        place = self._place if isinstance(self._place, TurnPlace) else LogPlace(version, skip)
        taken = TakenUp(version, self._deliveries.next_version, skip, place, since)
        self._epoch.take_up(taken)
        self._noted, self._taken = True, taken

    def _is_done(self, lot: Lot) -> bool:
        """Whether all of it is published, and nothing of it is in a turn of which deliveries are counted."""
        return lot.ended is not None and lot.ended < self._place[0]

    def _skip(self, version: int) -> int:
        return self._taken.skip if version == self._taken.version else 0

    def _known(self, log: Deliveries) -> Iterable[Lot]:
        """What was taken up before. What is neither on the shelf nor in the log was prepared again by other numbers."""
        since = self._taken.since
        lots = (lot for each in self._store.all() for lot in prepared_lots(each, Visible(), self._wanted))
        found = {lot.number: lot for lot in lots if lot.number in since}
        for version, actions in log.commits():
            if len(found) == len(since):
                break
            made = lots_of(version, actions, self._wanted, self._skip(version), since)
            found |= {lot.number: lot for lot in made if lot.number in since}
        return found.values()

    def _prepared(self) -> list[Lot]:
        """What is on the shelf, not visible, and not taken up."""
        names = self._store.names()
        new = [each for name in names - self._seen if (each := self._store.get(name)) is not None]
        self._seen = names
        lots = (lot for each in not_replaced(new) for lot in prepared_lots(each, self._visible, self._wanted))
        return [lot for lot in sorted(lots, key=lambda lot: lot.number) if lot.number not in self._lots]

    def _read(self, lot: Lot) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
        version = self._deliveries.next_version if lot.version is None else lot.version
        how = self._wanted, self._columns, DUE
        if lot.overlapping:
            yield from self._deliveries.rows_in_order(version, lot.overlapping, *how)
            return
        for path, before in lot.files:
            for places, rows in self._deliveries.rows(version, path, *how):
                yield [before + place for place in places], rows


def _visible(root: str, newest: int) -> Visible:
    """Which parts are visible, as the last commit of dispatch says it."""
    known = (visible_by(actions) for actions in commits(Files(), path_of(root, DELIVERIES), newest))
    return next((each for each in known if each is not None), Visible())

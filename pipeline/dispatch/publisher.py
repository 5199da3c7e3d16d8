"""The publisher: makes prepared parts visible when they are due, and accounts for it in `publications`.

Exactly once, whatever dies when:

- Until a batch is noted on the shelf, no version names its files, and Spark has not committed it: it is repeated, with
  files of its own. The first ones are nobody's.
- From the note on, the repeated batch finds it and does nothing.
- One version adds the files of parts and says that they are visible; it does both or neither. Whoever starts reads the
  last version and the shelf, and goes on with what is left.
- There is one publisher: the stage's lock, and the owner in the last version, see to it.

Never early: a part becomes visible when the last bucket in it has come, by the wall clock or by the virtual one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any

import pyarrow as pa

from pipeline.config.options import Delivered, Observer, StageListener
from pipeline.config.timeline import Timeline
from pipeline.config.wallclock import monotonic_ms
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.prepared import Part, Prepared, PreparedStore, Visible
from state.units import EPOCH, Ms

_LOOK_MS = 50
"""The wall clock may be set while we wait for it, so it is looked at so often at least."""
_ACCOUNT_MS = 1_000
"""A live publisher accounts for what it showed so often."""
_TIME = pa.timestamp("us", "UTC")
_ROW = pa.schema(
    [
        ("batch_id", pa.int64()),
        ("committed_at", _TIME),
        ("count", pa.int64()),
        ("first_due", _TIME),
        ("last_due", _TIME),
        ("job_started_at", _TIME),
    ]
)
Waiting = tuple[Prepared, Part]
"""A part that is not visible yet, with its batch."""


class Publisher:
    """Publishes for one stage; in a thread beside the query when the clock is live, else when it is told to."""

    def __init__(
        self, shelf: PreparedStore, deliveries: Sink, publications: Sink, timeline: Timeline, observe: Observer
    ) -> None:
        """Read the shelf, and what is visible already."""
        self._shelf, self._deliveries, self._timeline, self._observe = shelf, deliveries, timeline, observe
        self._publication_log = PublicationLog(deliveries, publications, timeline)
        self._visible = Visible() if deliveries.last is None else Visible.of(deliveries.last.note)
        noted = shelf.all()
        self._waiting = self._visible.hidden(noted)
        self._drop(noted)
        self._shares = dict[int, Sequence[Delivered]]()
        self._lock, self._wake, self._ended = Lock(), Event(), Event()
        self._thread: Thread | None = None
        self._published_ms = 0
        self.watch = StageListener()
        self.error: BaseException | None = None

    @property
    def prepared(self) -> list[Prepared]:
        """The batches of which something is not visible yet."""
        return list({each.number: each for each, _ in self._waiting}.values())

    @property
    def held_from(self) -> int | None:
        """The version of `held` before the first change of a batch of which something is not visible; None: of none."""
        return min((each.held.version for each in self.prepared if each.held is not None), default=None)

    @property
    def owners(self) -> set[str]:
        """The checkpoints that prepared what is not visible yet."""
        return {each.owner for each in self.prepared}

    @property
    def top(self) -> int:
        """The highest number of a part, visible or not; 0 before the first one."""
        return max([self._visible.top, *(part.number for _, part in self._waiting)])

    @property
    def released_at(self) -> Ms:
        """The instant of the last release, visible or not, ms UTC."""
        with self._lock:
            return max([self._visible.released_at, *(each.released_at for each, _ in self._waiting)])

    def knows(self, owner: str, batch_id: int) -> bool:
        """Whether a batch is prepared, or visible as a whole."""
        waits = any((each.owner, each.batch) == (owner, batch_id) for each, _ in self._waiting)
        return waits or self._deliveries.found(owner, batch_id) is not None

    def take(
        self,
        prepared: Prepared,
        noted: Callable[[Prepared], None] = lambda _: None,
        shares: Iterable[Sequence[Delivered]] = (),
    ) -> None:
        """Note a batch, its parts numbered anew; they are published when they are due, and not before `noted` is done.

        Whoever finds a note on the shelf and not what `noted` does, does it (`pipeline.dispatch.backlog.finish`).
        `shares` say of each part what the subscriptions have of it. They are for who watches: no note has them, and
        another process does not know them.
        """
        with self._lock:
            first = self.top + 1
            parts = tuple(replace(part, number=first + index) for index, part in enumerate(prepared.parts))
            prepared = replace(prepared, parts=parts)
            self._shelf.put(prepared)
            noted(prepared)
            self._shares |= {part.number: share for part, share in zip(parts, shares, strict=False)}
            self._waiting += [(prepared, part) for part in parts]
        self._wake.set()

    def publish_due(self) -> None:
        """Publish what is due and account for it, unless the thread does.

        Raises:
            BaseException: what the thread died of.
        """
        if self.error is not None:
            raise self.error
        if self._thread is None:
            while self._publish():
                pass
            self._flush_publications()

    def start(self) -> None:
        """Publish what an earlier process prepared; from now on in a thread, when the clock is live."""
        if not self._timeline.live:
            self.publish_due()
            return
        self._thread = Thread(target=self._run, name="delayline-publisher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, between two versions. What is not due yet stays on the shelf."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._wake.clear()
                if not self._publish():
                    if self._publication_log.unrecorded_ms >= _ACCOUNT_MS:
                        self._flush_publications()
                    self._wake.wait(self._pause_ms() / 1_000)
            self._flush_publications()
        except BaseException as error:  # noqa: BLE001 - it ends the stage, which looks for it
            self.error = error

    def _publish(self) -> bool:
        """Make visible what is due, by one version; whether anything was."""
        with self._lock:
            waiting = list(self._waiting)
        due = sorted((each for each in waiting if self._is_due(*each)), key=_order)
        if not due:
            return False
        numbers = {part.number for _, part in due}
        self._commit(due, [part.number for _, part in waiting if part.number not in numbers])
        self._drop(each for each, _ in due)
        self._published_ms = monotonic_ms()
        return True

    def _pause_ms(self) -> int:
        """Until the next part is due, or it is time for a look at the clock.

        Parts of several batches that are due soon after each other become visible together.
        """
        with self._lock:
            left = [part.last_due - self._timeline.now(each.released_at) for each, part in self._waiting]
        together = self._published_ms + _LOOK_MS - monotonic_ms()
        return min(_LOOK_MS, max(1, together, min(left, default=_LOOK_MS)))

    def _commit(self, due: Sequence[Waiting], hidden: Iterable[int]) -> None:
        top, part = max(due, key=lambda each: each[1].number)
        visible = self._visible.after([each.number for _, each in due], hidden, top)
        last = self._deliveries.last
        own = (top.owner, top.batch)
        owner, batch = own if last is None or part.number > self._visible.top else (last.owner, last.batch)
        for waiting in due:
            self._shelf.check(*waiting)
        files = [file for _, each in due for file in each.files]
        shown = [_shown(*each) for each in due]
        # Sinks may know parts by their numbers already.
        note = visible.as_dict() | {"shown": shown, "parts": [part.number for _, part in due]}
        version = self._deliveries.commit(files, owner, batch, note)
        with self._lock:
            self._visible = visible
            self._waiting = [each for each in self._waiting if each[1] not in visible]
        self._publication_log.add(version, shown)
        for each, piece in due:
            shares, now = self._shares.pop(piece.number, ()), self._timeline.now(each.released_at)
            self.watch.published(piece.count, piece.first_due, piece.last_due, now, shares)
        self._observe("dispatch.deliveries", top.batch)

    def _drop(self, noted: Iterable[Prepared]) -> None:
        """Take off the shelf what is visible as a whole."""
        for each in {id(each): each for each in noted}.values():
            if all(part in self._visible for part in each.parts):
                self._shelf.drop(each)

    def _is_due(self, prepared: Prepared, part: Part) -> bool:
        return part.last_due <= self._timeline.now(prepared.released_at)

    def _flush_publications(self) -> None:
        if self._publication_log.flush():
            self._observe("dispatch.publications", -1)


class PublicationLog:
    """Writes `publications`: a row for each part that a version of `deliveries` made visible."""

    def __init__(self, deliveries: Sink, publications: Sink, timeline: Timeline) -> None:
        """Look for versions that an earlier process did not account for."""
        self._deliveries, self._publications, self._timeline = deliveries, publications, timeline
        self._unwritten: list[dict[str, Any]] = []
        self._upto = -1 if publications.last is None else int(publications.last.note["version"])
        self._since_ms = 0
        self._started_at: Ms | None = None
        for version, commit in deliveries.since(self._upto):
            self.add(version, commit.note["shown"])
        if timeline.live:
            self._started_at = timeline.now(EPOCH)

    def add(self, version: int, shown: Iterable[Sequence[int]]) -> None:
        """A version that has just been added, and what it made visible."""
        if not self._unwritten:
            self._since_ms = monotonic_ms()
        self._upto = version
        self._unwritten += [self._row(*each) for each in shown]

    @property
    def unrecorded_ms(self) -> int:
        """For how long a row has been waiting to be written."""
        return monotonic_ms() - self._since_ms if self._unwritten else 0

    def flush(self) -> bool:
        """Write what is owed; whether anything was."""
        last, unwritten = self._deliveries.last, self._unwritten
        if not unwritten or last is None:
            return False
        self._publications.put(
            pa.Table.from_pylist(unwritten, schema=_ROW), last.owner, last.batch, {"version": self._upto}
        )
        self._unwritten = []
        return True

    def _row(self, batch: int, count: int, first_due: int, last_due: int, released_at: int) -> dict[str, Any]:
        times = {
            "committed_at": self._timeline.now(Ms(released_at)),
            "first_due": first_due,
            "last_due": last_due,
            "job_started_at": self._started_at,
        }
        of_row = {name: None if ms is None else ms * 1_000 for name, ms in times.items()}
        return {"batch_id": batch, "count": count, **of_row}


def _order(waiting: Waiting) -> tuple[int, int]:
    """Parts become visible as they are due; of equal ones the one that was prepared first."""
    return waiting[1].last_due, waiting[1].number


def _shown(prepared: Prepared, part: Part) -> list[int]:
    """What a version says of a part that it makes visible; in the order of `PublicationLog._row`."""
    return [prepared.batch, part.count, part.first_due, part.last_due, prepared.released_at]

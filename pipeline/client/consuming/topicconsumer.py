"""One consumer of one topic: its lease, and what it does for it. `turn` is all that ever happens to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from deltalake.exceptions import DeltaError

from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.received import Received
from pipeline.client.consuming.slotassignment import NO_SESSION, SlotAssignment
from pipeline.client.consuming.slotfetcher import Logs
from pipeline.client.consuming.unackedtracker import UnackedTracker
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.tables.events import EventRows
from pipeline.client.tables.rows import Key, Rows
from pipeline.config.errors import AlreadySubscribed, PipelineError, VersionGone
from pipeline.subscriptions.incarnations import Name
from state import LeaseReplay, Positions
from state.lease_events import Active, Busy, Event, Instruction, Looked, Rebased

_LOG = logging.getLogger(__name__)
_ASK_MS, _SOON_MS = 500, 20
"""Between two questions whether settle knows the subscription by now; when settle has written since."""
_LIFE_MS = 5_000
"""Between two questions whether the subscription has begun another life. All consumers of a process ask together."""


class TopicConsumer:
    """A consumer of one topic. All but `tracker` belongs to the thread that turns the engine.

    Attributes:
        topic: the topic.
        spelled: its name, as the program spells it.
        subscription: the subscription.
        options: how the consumer works; it has a name.
        tracker: what the application has to do with; guarded by `lock`.
        lock: guards the tracker; notified when there is something for the application.
        busy: who has the exclusive subscription, when somebody else does who lives.
        life: the number of the subscription's life in which it is; 0: in none.
        over: the last life of which it knows that it is over; 0: of none.
        failure: why it gets nothing any more; None: it does.
        served: whether the application gets messages of other topics by the same consumer. Then nobody tells it that
            this one has failed, so it looks for the subscription again.
        active: called with True when a failover consumer comes to be the one that gets messages, else with False.
    """

    def __init__(
        self, logs: Logs, topic: str, subscription: str, options: ConsumerOptions, lock: threading.Condition
    ) -> None:
        self._logs, self.topic, self.subscription, self.options, self.lock = logs, topic, subscription, options, lock
        self.spelled = options.spell(topic)
        self.tracker = UnackedTracker(logs.clock, options, self._may, logs.writer.add)
        self.busy: str | None = None
        self.failure: Exception | None = None
        self.life = self.over = 0
        self.active: Callable[[bool], None] = lambda _: None
        self.served: Callable[[], bool] = lambda: False
        self._key: Key = (topic, subscription, 0)
        self._slots: SlotAssignment | None = None
        self._asked_at: int | None = None
        self._lives = self._asked_of = -1
        self._closed = logs.closed.changes
        self._left = False

    @property
    def owns(self) -> bool:
        """Whether it has a slot."""
        slots = self._slots
        return slots is not None and bool(slots.member.slots)

    @property
    def holder(self) -> str | None:
        """Who has the exclusive subscription by the log, whether that consumer lives or not."""
        slots = self._slots
        return None if slots is None else slots.owner(0)

    @property
    def named(self) -> Name:
        """Topic and subscription."""
        return self.topic, self.subscription

    @property
    def key(self) -> Key | None:
        """The life of the subscription in which it is; None: in none."""
        return None if self._slots is None else self._key

    @property
    def oldest(self) -> int | None:
        """The version of `deliveries` up to which it has read all; None: it reads nothing."""
        return None if self._slots is None else self._slots.fetcher.oldest

    @property
    def next_timeout(self) -> int | None:
        """When it takes a message back that is not acknowledged, by the clock of timeouts, ms; None: never."""
        with self.lock:
            return self.tracker.next_timeout

    def turn(self) -> None:
        """Do what is to be done now: the logs were read to their ends."""
        if self._left or (self.failure and not self._comes_back()):
            return
        if (self._slots is None and not self._join()) or self._lives_anew():
            return
        slots, replay = self._slots, self._replay()
        if slots is None or replay is None:
            return
        now = self._logs.clock.now()
        with self.lock:
            self.tracker.count()
            self._drop_closed()
            who = self.topic, self.subscription, self.options.consumer_name
            self.tracker.stats.tell(now, who, self.tracker.queue.size, self.tracker.unacked)
            slots.read_again(replay)
        slots.fetcher.begin_backlogs(slots.event_rows)
        events: list[Event] = [] if replay is slots.member.replay else [Rebased(replay)]
        events += [*slots.paced(now), *slots.died()]
        with slots.fetcher.whole():
            rows, says = self._fill(slots)
            self._notice(slots.handle(*events, *says, *slots.progress(), Looked()))
            self._put(rows)

    def settle_in(self, life: int, positions: Positions) -> None:
        """Messages are done with in a life that has begun, and of which this consumer has not heard yet."""
        if life > max(self.life, self.over):
            event_rows = EventRows((*self.named, life), self.options.consumer_name, NO_SESSION)
            self._logs.writer.add(event_rows.acks(positions, self._logs.clock.wall()))

    def holds(self, message: Received) -> bool:
        """Whether it has a message that was handed out, and nobody has settled it."""
        return self.tracker.holds(message)

    def leave(self) -> None:
        """Say the last things: what was acknowledged, and that it is gone."""
        self._left = True
        with self.lock:
            if self.tracker.event_rows is None and self.tracker.has_acks:
                self._find_event_rows()
            self.tracker.count()
        if self._slots is not None:
            self._notice(self._slots.leave())

    def _find_event_rows(self) -> None:
        """It has not joined, and was told of messages by their ids: they are of the newest life."""
        try:
            life = self._logs.cursors.life(*self.named)
        except (PipelineError, DeltaError, OSError) as error:
            _LOG.warning("%s/%s: what was acknowledged by ids is not said: %s", *self.named, error)
        else:
            self.tracker.event_rows = (
                None if life is None else EventRows((*self.named, life), self.options.consumer_name, NO_SESSION)
            )

    # ---- joining

    def _join(self) -> bool:
        """Begin, when settle knows the subscription."""
        now, cursors = self._logs.clock.now(), self._logs.cursors.next
        pause = _ASK_MS if cursors == self._asked_of else _SOON_MS
        if self._asked_at is not None and now - self._asked_at < pause:
            return False
        self._asked_at, self._asked_of = now, cursors
        snapshot = self._logs.cursors.snapshot(*self.named)
        if snapshot is None:
            return False
        if not self._is_registered():
            return False
        self._key = (*self.named, snapshot.rows.life)
        replay = self._replay()
        if replay is None:
            return False
        self._slots = SlotAssignment(self._logs, self._key, self.options, replay, self.tracker, self.lock)
        with self.lock:
            self.life = self._key[2]
            self.lock.notify_all()
        return True

    def _lives_anew(self) -> bool:
        """Whether the subscription has begun another life; then nothing of this one counts any more."""
        now = self._logs.clock.now()
        lives = self._logs.cursors.lives
        if self._asked_at is not None and now // _LIFE_MS == self._asked_at // _LIFE_MS and lives == self._lives:
            return False
        self._asked_at, self._lives = now, lives
        if not self._is_registered():
            return True
        life = self._logs.cursors.life(*self._key[:2])
        if life is None or life == self._key[2]:
            return False
        self.over = self._key[2]
        self._reset()
        return True

    def _comes_back(self) -> bool:
        """Whether the subscription, which had ended, is there again, of the type of this consumer."""
        now = self._logs.clock.now()
        if not self.served() or (self._asked_at is not None and now - self._asked_at < _LIFE_MS):
            return False
        self._asked_at = now
        if self.options.kind not in (self._logs.registry.types(*self.named) or ()):
            return False
        _LOG.warning("consumer %s gets messages of %s/%s again", self.options.consumer_name, *self.named)
        self.failure, self._asked_at = None, None
        return True

    def _is_registered(self) -> bool:
        """Whether the subscription is there, and of the type of this consumer; else it fails.

        A subscription that is ended and made anew may have another type. Whoever shares it in another way would hand
        out what others hand out, too.
        """
        types = self._logs.registry.types(*self.named)
        if types is None or self.options.kind in types:
            return True
        found = f"type {', '.join(sorted(types))}"
        self.fail(AlreadySubscribed(*self.named, found) if types else SubscriptionNotFound(*self.named))
        return False

    def fail(self, error: Exception) -> None:
        """Get nothing any more; who waits for messages is given the error."""
        _LOG.warning("consumer %s gets nothing any more: %s", self.options.consumer_name, error)
        self.failure = error
        self._reset()
        with self.lock:
            self.lock.notify_all()

    def _replay(self) -> LeaseReplay | None:
        try:
            return self._logs.replay(self._key)
        except VersionGone:
            return None  # Settle has said something newer, or will in a moment.

    def _reset(self) -> None:
        """Join again; nothing of this life counts any more."""
        with self.lock:
            self.tracker.clear()
            self.life = 0
        if self._slots is not None:
            self._slots.end()
        self._slots, self._asked_at = None, None

    # ---- what happens

    def _may(self, slot: int, now: int) -> bool:
        slots = self._slots
        return slots is not None and slots.member.may_hand_out(slot, now)

    def _fill(self, slots: SlotAssignment) -> tuple[list[Rows], list[Event]]:
        """Read ahead; give the rows, and what the lease is to be told before they may be handed out."""
        found: list[Rows] = []
        events: list[Event] = []
        room = max(1, self.options.receiver_queue_size) - self.tracker.queue.size
        if room <= 0 and self.tracker.is_paused:
            return list(slots.fetcher.redeliveries()), events
        while room > 0:
            rows, says = slots.fetcher.next()
            events += says
            if rows is None:
                break
            found += [rows] if len(rows) else []
            room -= len(rows)
            if not self._logs.pace.more:
                break
        return found, events

    def _drop_closed(self) -> None:
        """Leave out of the queue what has been closed since it was read."""
        closed = self._logs.closed
        if self._closed != closed.changes:
            self._closed = closed.changes
            self.tracker.queue.keep(lambda rows: closed.without(self._key, rows))

    def _put(self, parts: list[Rows]) -> None:
        mine = set() if self._slots is None else self._slots.readable
        with self.lock:
            for rows in parts:
                self.tracker.queue.put(rows.of_slots(mine))
            if self.tracker.queue.size or self.busy is not None or mine:
                self.lock.notify_all()

    def _notice(self, instructions: list[Instruction]) -> None:
        """What the lease says to the consumer as a whole."""
        for each in instructions:
            match each:
                case Busy(consumer):
                    self.busy = consumer
                case Active(active):
                    self.active(active)
                case _:
                    pass

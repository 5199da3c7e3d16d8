"""All sinks of a warehouse: as many as the registry has at the moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Event

from deltalake import DeltaTable

from pipeline.client.subscribing.lines import registered_in
from pipeline.client.subscribing.subscriptions import active
from pipeline.config.options import NOBODY, StageListener
from pipeline.config.settings import Settings
from pipeline.config.threads import beside, panics_raised
from pipeline.config.wallclock import monotonic_ms, wall_ms
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import newest
from pipeline.sinks.kafka import KafkaTopic
from pipeline.sinks.line import SinkConfig
from pipeline.sinks.loop import PATIENCE_S, SinkLoop
from pipeline.sinks.pulsar import PulsarTopic
from pipeline.sinks.topic import Connect, Topic
from pipeline.storage.files import Files
from pipeline.storage.texts import MAX_KEY_BYTES, MAX_PROPERTIES_BYTES
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.limits import limits_of
from pipeline.subscriptions.sinkplaces import SinkPlaces, late_s
from schemas import DELIVERIES, SUBSCRIPTIONS

_LOG = logging.getLogger(__name__)
LOOK_S, LOOK_REMOTE_S = 1.0, 5.0
"""Between two looks at the registry."""
_PAUSE_S, _PAUSE_REMOTE_S = 0.05, 0.5
"""Between two looks of a sink at the log of `deliveries`."""
_BEGIN_MS, _STEP_S = 30_000, 0.05
"""So long a sink that begins is waited for, with a look each time."""
_FRAMING_BYTES = 1 << 20
"""What the broker's protocol takes beside them: some bytes for each property."""


def _kafka(root: str, to: Destination, producer: str, place: str) -> Topic:
    limits = limits_of(Files(), root)
    payload = Settings.max_payload_bytes if limits is None else limits.max_payload_bytes
    return KafkaTopic(to, producer, place, payload + MAX_KEY_BYTES + MAX_PROPERTIES_BYTES + _FRAMING_BYTES)


def _pulsar(root: str, to: Destination, producer: str, place: str) -> Topic:  # noqa: ARG001 - its client bounds nothing
    return PulsarTopic(to, producer, place)


TOPICS: Mapping[str, Callable[[str, Destination, str, str], Topic]] = {
    "kafka": _kafka,
    "pulsar": _pulsar,
    "pulsar+ssl": _pulsar,
}
"""By the scheme of an address: what connects to such a topic, for messages as large as the warehouse takes them."""


def connected(root: str, to: Destination, producer: str, place: str) -> Topic:
    """A connection to the broker that an address names."""
    return TOPICS[to.scheme](root, to, producer, place)


@dataclass(frozen=True)
class Share:
    """The sinks that a process publishes for, by their names.

    Attributes:
        only: this one; None: all of the registry.
        without: but not these, which have a process each.
        one_by_one: each begins when the one before has caught up or stands still, or after half a minute.
    """

    only: str | None = None
    without: Sequence[str] = ()
    one_by_one: bool = False

    def has(self, name: str) -> bool:
        """Whether a sink is one of them."""
        return name not in self.without if self.only is None else name == self.only


ALL = Share()
Begins = Callable[[str | None], None]
"""Told of the name of a sink that begins, and None when it has caught up or stands still."""


def publishing(
    root: str,
    watch: StageListener = NOBODY,
    connect: Connect | None = None,
    share: Share = ALL,
    begins: Begins = lambda _: None,
) -> AbstractContextManager[None]:
    """Publish for sinks of a warehouse while the block runs. Where only Hadoop reaches, there are none."""
    if Files().readable(root) is None:
        return nullcontext()
    return beside(Sinks(root, watch, connect or partial(connected, root), share, begins).run)


class Sinks:
    """Follows the registry."""

    def __init__(self, root: str, watch: StageListener, connect: Connect, share: Share, begins: Begins) -> None:
        self._share, self._begins = share, begins
        self._root, self._watch, self._connect, self._files = root, watch, connect, Files()
        self._places, self._seen = SinkPlaces(self._files, root), -1
        self._running: dict[SinkConfig, SinkLoop] = {}
        here = self._files.local(root) is not None
        self._look_s, self._pause_s = (LOOK_S, _PAUSE_S) if here else (LOOK_REMOTE_S, _PAUSE_REMOTE_S)

    def run(self, ended: Event) -> None:
        """Follow it until it is ended, and wait for all sinks then."""
        while not ended.is_set():
            try:
                with panics_raised():
                    self._look(ended)
                    self._tell()
            except Exception:  # noqa: BLE001 - a store that does not answer; it is asked again
                _LOG.warning("the registry could not be read for sinks; it is tried again", exc_info=True)
            ended.wait(self._look_s)
        self._end(set(self._running))

    def _look(self, ended: Event) -> None:
        version = newest(self._files, path_of(self._root, SUBSCRIPTIONS), self._seen)
        if version == self._seen:
            return
        registry = open_table(self._root, SUBSCRIPTIONS)
        table = str(open_table(self._root, DELIVERIES).metadata().id)
        lines, noted = (line for line in map(SinkConfig.of, active(registry)) if line is not None), self._places.all()
        names = {line: name for line in lines if self._share.has(name := line.name(table, noted))}
        wanted = set(names)
        self._end(set(self._running) - wanted)
        for line in sorted(wanted - set(self._running), key=names.__getitem__):
            if ended.is_set():
                return
            loop = SinkLoop(self._root, table, line, self._places, self._connect, name=names[line])
            self._running[line] = loop
            if self._share.one_by_one:
                self._begins(loop.name)
            loop.start(self._pause_s)
            if self._share.one_by_one:
                _wait_for(loop, ended)
                self._begins(None)
        self._tidy(registry)
        self._seen = version

    def _tidy(self, registry: DeltaTable) -> None:
        """Forget sinks that have ended. Those of some subscriptions may go on when somebody has corrected a line."""
        names = set(filter(self._share.has, self._places.names()))
        ended = names - {loop.name for loop in self._running.values()}
        stay = registered_in(registry).unclear if ended else set[Name]()
        for name in ended:
            place = self._places.get(name)
            if place is None or (place.topic, place.subscription) not in stay:
                self._places.drop(name)

    def _tell(self) -> None:
        """Say of each sink how late it is."""
        table, now_ms = path_of(self._root, DELIVERIES), wall_ms()
        for line, loop in self._running.items():
            self._watch.sink_late(line.topic, line.subscription, late_s(self._files, table, loop.version, now_ms))

    def _end(self, lines: set[SinkConfig]) -> None:
        # All at once: one that waits for its broker is not to keep the others from it.
        for line in lines:
            self._running[line].end()
        ends_ms = monotonic_ms() + 1_000 * PATIENCE_S
        for line in lines:
            self._running.pop(line).stop(max(0.0, (ends_ms - monotonic_ms()) / 1_000))
            self._watch.sink_late(line.topic, line.subscription, None)


def _wait_for(loop: SinkLoop, ended: Event) -> None:
    begun = monotonic_ms()
    while not loop.settled.wait(_STEP_S) and monotonic_ms() - begun < _BEGIN_MS and not ended.is_set():
        pass

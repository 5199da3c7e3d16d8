"""`delayline send`: messages from the command line, from files or from stdin into the inbox."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from jobs.commands.durations import UNITS_MS
from jobs.commands.jsonform import json_line, record
from jobs.commands.times import spoken
from jobs.terminal import echo
from pipeline.client.producing.inbox import OutgoingMessage, checker, drawn_name, send
from pipeline.client.producing.limits import too_late
from pipeline.client.subscribing.calendars import followed_topics
from pipeline.client.tables.partitions import topic_partitions
from pipeline.config.errors import PipelineError
from pipeline.config.paths import usable
from pipeline.config.printed import printable
from pipeline.config.settings import Settings
from pipeline.config.spelling import spell
from pipeline.storage.files import Files
from pipeline.subscriptions.limits import limits_of
from pipeline.subscriptions.topicnames import partition_for
from pipeline.subscriptions.topicpolicies import TopicPolicies

_EPOCH = datetime.fromtimestamp(0, UTC)
_NAMED = 3
"""So many subscriptions are named."""
_MESSAGES, _BYTES = 50_000, 16 * 1024 * 1024
"""One commit takes up to so many messages and bytes: long input is sent as it comes, in bounded memory."""


class Outbox:
    """Messages of one form that are gathered for a commit.

    Attributes:
        producer_name: by which the messages are named, with numbers from 0 on.
        sent: how many were sent, also when a later one failed.
    """

    def __init__(self, root: str, form: OutgoingMessage) -> None:
        self.producer_name, self.sent = drawn_name(), 0
        self._root, self._check = root, checker(root)
        self._form, self._policies = replace(form, producer_name=self.producer_name), _policies_of(root, form.topic)
        self._topics = topic_partitions(root, form.topic)
        self._first: OutgoingMessage | None = None
        self._gathered, self._bytes = list[OutgoingMessage](), 0

    def take(self, payload: bytes, read_at: datetime) -> None:
        """Gather a message that was read at a time.

        Raises:
            MessageTooBig: the job takes no such payload. It was not gathered.
            InvalidMessage: the same of its delay, or the topic takes no such delay.
        """
        number = self.sent + len(self._gathered)
        topic = self._topics[partition_for(self._form.key, number, len(self._topics))]
        message = replace(self._form, topic=topic, payload=payload, publish_time=read_at, sequence_id=number)
        self._check(message)
        self._check_delay(message)
        self._first = self._first or message
        self._gathered.append(message)
        self._bytes += len(payload)

    def _check_delay(self, message: OutgoingMessage) -> None:
        """Refuse what ingest would: the policies of the topic count for it, too."""
        delay_ms, most = message.deliver_after_ms or message.delay_ms, self._policies.max_delay_ms
        if most is not None and delay_ms > most:
            raise too_late(delay_ms, most, "the policy max_delay_ms of the topic")

    def times(self) -> Iterator[str]:
        """What was asked for, as it was understood, and when a single message comes."""
        after_ms, at = self._form.deliver_after_ms, self._form.deliver_time
        due, opens = self._due(), self._opens()
        if after_ms is not None:
            yield f"to come after {spell(after_ms) if after_ms >= UNITS_MS['s'] else f'{after_ms}ms'}"
        elif at is not None:
            yield f"to come at {spoken(at)}"
        if opens is not None:
            spread = self._policies.window_spread_ms
            within = f"within {spell(spread)} from {spoken(opens)} on" if spread else spoken(opens)
            yield f"due {within} by the window of the topic"
        elif due is not None and due != at:
            floor = self._policies.fixed_delay_ms or self._policies.min_delay_ms
            yield f"due {spoken(due)}{'' if floor is None else ' by the policies of the topic'}"

    def record(self) -> dict[str, object]:
        """The same for scripts."""
        opens = self._opens()
        due = self._due() if opens is None else None if self._policies.window_spread_ms else opens
        times = {"deliver_at": self._form.deliver_time, "due_time": due}
        return record(**{name: each for name, each in times.items() if each is not None})

    def _due(self) -> datetime | None:
        return None if self._first is None or self.sent != 1 else _due(self._first, self._policies)

    def _opens(self) -> datetime | None:
        """The opening for which a single message has to wait; None: it comes when it is due, or nobody can tell."""
        return None if self._first is None or self.sent != 1 else _opens(self._first, self._policies)

    @property
    def is_full(self) -> bool:
        """Whether it is time to send what is gathered."""
        return len(self._gathered) >= _MESSAGES or self._bytes >= _BYTES

    def send(self) -> None:
        """Send what is gathered, in one commit.

        Raises:
            NoWarehouse: the folder has no inbox.
            StillConflicting: other writers were faster every time.
        """
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        self.sent += send(self._root, gathered)


def warn_of_delay(root: str, form: OutgoingMessage) -> None:
    """Say that a job with the usual settings rejects so long a delay. One that has run has said what it takes."""
    most = Settings().max_delay_ms
    delay_ms = form.deliver_after_ms or replace(form, publish_time=datetime.now(UTC)).delay_ms
    if delay_ms > most and limits_of(Files(), usable(root)) is None:
        echo(f"delayline: a job with the usual settings rejects a delay of more than {spell(most)}", err=True)


def send_whole(outbox: Outbox, payloads: Iterable[bytes]) -> None:
    """Send what is there as a whole; if one of the messages is refused, those of the same commit are not sent."""
    for payload in payloads:
        outbox.take(payload, datetime.now(UTC))
        if outbox.is_full:
            outbox.send()
    outbox.send()


def send_lines(outbox: Outbox, lines: Iterable[tuple[bytes, datetime] | None]) -> None:
    """Send lines as they come, and at each None what came before it.

    If one is refused, those before it are sent, so that whoever knows how many were sent knows which one it was.
    """
    for each in lines:
        try:
            if each is not None:
                outbox.take(*each)
        except PipelineError:
            outbox.send()
            raise
        if each is None or outbox.is_full:
            outbox.send()
    outbox.send()


def payloads(text: str | None, files: list[Path]) -> Iterator[bytes]:
    """The argument, else each file as a whole."""
    if text is not None:
        # Bytes of the command line that are no UTF-8 are in the text as surrogates; they are sent as they came.
        yield os.fsencode(text)
    else:
        yield from (file.read_bytes() for file in files)


def summary(outbox: Outbox, heard: Sequence[str], *, as_json: bool) -> str:
    """How many were sent, their ids, when they come, if a time was asked for, and for which subscriptions."""
    ids = [f"{outbox.producer_name}:{number}" for number in sorted({0, outbox.sent - 1}) if number >= 0]
    if as_json:
        return json_line({"sent": outbox.sent, "message_ids": ids, "subscription_names": heard} | outbox.record())
    sent = f"{outbox.sent} sent{' as ' if ids else ''}{' to '.join(ids)}"
    names = [printable(each) for each in heard[:_NAMED]]
    names += [f"{len(heard) - _NAMED:,} more"] if len(heard) > _NAMED else []
    return ", ".join([sent, *outbox.times(), *([f"for {', '.join(names)}"] if names and ids else [])])


def _policies_of(root: str, topic: str) -> TopicPolicies:
    """The policies of a topic; none where nobody can tell."""
    with suppress(PipelineError, OSError):
        return followed_topics(root).of(topic)
    return TopicPolicies()


def _due(message: OutgoingMessage, policies: TopicPolicies) -> datetime | None:
    """When ingest lets a message be due; None: at once, or rounded as the topic asks for."""
    if policies.precision != TopicPolicies().precision or message.publish_time is None:
        return None
    fixed = policies.fixed_delay_ms
    delays = [fixed] if fixed is not None else [message.deliver_after_ms, policies.min_delay_ms]
    times = [message.publish_time + timedelta(milliseconds=each) for each in delays if each is not None]
    times += [message.deliver_time] if fixed is None and message.deliver_time is not None else []
    return max(message.publish_time, *times) if times else None


def _opens(message: OutgoingMessage, policies: TopicPolicies) -> datetime | None:
    """When the window of a topic opens for a message that would be due while it is closed."""
    opening, due = policies.opening, _due(message, policies) or message.publish_time
    if opening is None or due is None or policies.precision != TopicPolicies().precision:
        return None
    name = opening.zone.property
    zones = None if name is None else pa.array([(message.properties or {}).get(name)], pa.string())
    ms = np.array([-((_EPOCH - due) // timedelta(milliseconds=1))], np.int64)
    opens = int(opening.put_off(ms, np.zeros(1, np.int64), zones=zones)[0])
    return _EPOCH + timedelta(milliseconds=opens) if opens > ms[0] else None

"""`delayline receive`: deliveries, printed as they appear."""

import time
from collections.abc import Callable

from jobs.commands.jsonform import json_line, record
from pipeline.client.tables.deliveries import Deliveries, Delivery
from pipeline.client.tables.job import JobWatch
from pipeline.config.printed import printable
from pipeline.service.outages import no_answer

_POLL_S, _LONGEST_S = 0.2, 5.0
"""Between two looks; while the store does not answer, each time twice as long up to the longest."""


def receive(
    deliveries: Deliveries,
    wanted: tuple[str | None, str | None, str | None],
    echo: Callable[[str], None],
    warn: Callable[[str], None],
    *,
    form: Callable[[Delivery], str],
    follow: bool,
    limit: int | None,
) -> int:
    """Print deliveries of a topic, subscription and key (None: any) until there are none, or for ever; give how many.

    Args:
        deliveries: where to read.
        wanted: topic, subscription and key.
        echo: prints a line.
        warn: says, once for each time, that the store does not answer, or that no job runs; who follows asks again.
        form: the line of a delivery.
        follow: wait for more.
        limit: stop after so many.

    Raises:
        OSError: the store does not answer, and nobody follows; or it answers that it does not give something.
    """
    *names, key = wanted
    taken, count, pause_s = deliveries.take(*names), 0, _POLL_S
    watch = JobWatch(deliveries.root, warn)
    while count != limit:
        try:
            each = next(taken, None)
        except OSError as error:
            said = no_answer(error)
            if said is None or not follow:
                raise
            if pause_s == _POLL_S:
                warn(f"the store does not answer, and is asked again: {said}")
            each, pause_s = None, min(2 * pause_s, _LONGEST_S)
        else:
            pause_s = _POLL_S
        if each is not None:
            watch.look(news=True)
            if key in (None, each.key):
                echo(form(each))
                count += 1
        elif follow:
            watch.look(news=False)
            time.sleep(pause_s)
            taken = deliveries.take(*names)
        else:
            break
    return count


def line(delivery: Delivery) -> str:
    """A delivery for people: when, for whom, key, payload, how late; when it was due, if nobody knows more."""
    key = f" [{printable(delivery.key)}]" if delivery.key else ""
    name = printable(f"{delivery.topic}/{delivery.subscription}")
    text = printable(delivery.payload.decode(errors="backslashreplace"))
    when = f"{delivery.visible_at or delivery.due_time:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    late = "due then" if delivery.late_s is None else f"{delivery.late_s:.3f} s late"
    return f"{when}  {name}{key}  {text}  ({late})"


def as_json(delivery: Delivery) -> str:
    """The same for scripts."""
    return json_line(
        record(
            topic=delivery.topic,
            subscription=delivery.subscription,
            position=delivery.position,
            version=delivery.order[0],
            sequence=delivery.order[1],
            key=delivery.key,
            properties=delivery.properties,
            publish_time=delivery.publish_time,
            deliver_at=delivery.deliver_at,
            due_time=delivery.due_time,
            visible_at=delivery.visible_at,
            late_ms=_ms(delivery.late_s),
            since_deliver_at_ms=_ms(delivery.since_deliver_at_s),
            redelivery_count=delivery.redelivery_count,
            payload=delivery.payload,
        )
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)

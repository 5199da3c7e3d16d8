"""What `trace` prints, as text or JSON."""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.client.insight.facts import PUT_OFF_FROM, Fact, Step
from pipeline.client.insight.trace import MessageState, Trace
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, late_text, spell

_NO_TIME = " " * len(iso_text(0))
_CAUSES = {
    "due": "its time has come",
    "express": "it was due at once",
    "rescheduled": "the time of a command has come",
}
_LEFT_OUT = {
    "rescheduled": "it comes at another time",
    "expired": "it was due too long ago",
    "suppressed": "its guard did not hold",
    "replaced": "a newer message has its key",
}
_STATES = {
    "waits": "waits",
    "taken": "is taken for delivery",
    "held": "is held, since the subscription is paused or closed or has a rate or a guard",
    "cancelled": "is cancelled",
    "replaced": "is replaced",
    "expired": "has expired: it could not be handed over in time",
    "suppressed": "is not delivered: it did not meet the guard",
    "left_out": "was left out",
    "published": "is published",
    "outstanding": "is published, and not acknowledged yet",
    "waits_again": "failed, and waits to come again",
    "settled": "is settled",
    "before": "was there before this subscription",
    "gone": "is settled, and what was known is deleted",
}


def report(topic: str, found: Sequence[Trace], limit: int) -> Iterator[str]:
    """Lines for people: a message, what happened to it, and how it stands; then the next one."""
    if not found:
        yield f"{printable(topic)}: no table has such a message"
    if len(found) > limit:
        yield f"There are older ones; --limit {2 * limit} shows more."
    for number, each in enumerate(found[-limit:]):
        if number:
            yield ""
        yield _head(each)
        yield from (_step(step) for step in each.steps)
        if each.sent.position is None and each.sent.refused is None:
            yield "  it waits in the inbox until ingest takes it"
        yield from (f"  {state_words(state)}" for state in each.states)


def _head(found: Trace) -> str:
    sent = found.sent
    place = "" if sent.position is None else " {}:{}".format(*sent.position)
    key = "" if sent.key is None else f" [{printable(sent.key)}]"
    due = "" if sent.due is None else f" due {iso_text(sent.due)},"
    return f"{printable(found.topic)}{place}{key}{due} {sent.payload_bytes:,} bytes"


def _step(step: Step) -> str:
    at = _NO_TIME if step.at is None else iso_text(step.at)
    whose = "" if step.subscription is None else f"{printable(step.subscription)}: "
    again = f", redelivery {step.redelivery_count}" if step.redelivery_count else ""
    return f"  {at}  {whose}{step_words(step.what, step.details)}{again}"


def step_words(what: str, details: Mapping[str, Fact]) -> str:  # noqa: PLR0911 - a line for each kind of step
    """What happened, for people."""
    match what:
        case "sent":
            return "sent"
        case "accepted" | "refused" | "replaced":
            return _ingested(what, details)
        case "released":
            cause = str(details["cause"])
            return f"released ({_CAUSES.get(cause, cause)})"
        case "left_out":
            return f"left out by dispatch: {_LEFT_OUT.get(str(details['reason']), details['reason'])}"
        case "published":
            return _published(details)
        case "closed":
            return f"settled while it waited to come again ({details['cause']})"
        case "dead_letter":
            place = f"{printable(str(details['topic']))} {details['position']}"
            return f"became a dead letter: {place} ({details.get('cause')})"
        case "ack" | "nack":
            return _said(what, details)
        case _:
            return _commanded(what, details)


def _published(details: Mapping[str, Fact]) -> str:
    """How late it was, and whether that is because no job ran when it was due."""
    late, started = details["late_ms"], details.get("job_started_at")
    if not isinstance(late, int):
        return "published, not noted yet when"
    why = f": its job was started at {iso_text(started)}" if isinstance(started, int) else ""
    return f"published, {late_text(late)} late{why}"


def _put_off(details: Mapping[str, Fact]) -> str:
    """Why it is due later than its producer asked."""
    before = details.get(PUT_OFF_FROM)
    return f", put off from {iso_text(before)} to the next opening" if isinstance(before, int) else ""


def _ingested(what: str, details: Mapping[str, Fact]) -> str:
    if what == "replaced":
        return f"replaced by {details['by']}"
    if what == "refused":
        waits = f", since {details['waits']} waits" if "waits" in details else ""
        return f"refused by ingest: {details['reason']}{waits}"
    place = f", in the place of {details['replaces']}" if "replaces" in details else ""
    return f"accepted at {details['position']}{_put_off(details)}{place}"


def _said(what: str, details: Mapping[str, Fact]) -> str:
    by = f" by {printable(str(details['consumer']))}" if details.get("consumer") is not None else ""
    cause = f" ({details['cause']})" if details.get("cause") not in (None, "nack") else ""
    after = details.get("after_ms")
    again = f", to come again after {spell(after)}" if isinstance(after, int) else ""
    return f"{'acknowledged' if what == 'ack' else 'failed'}{by}{cause}{again}"


def _commanded(what: str, details: Mapping[str, Fact]) -> str:
    by = f" by {printable(str(details['by']))}" if details.get("by") is not None else ""
    of = f" of {printable(str(details['undoes']))}" if details.get("undoes") is not None else ""
    reason = f": {printable(str(details['reason']))}" if details.get("reason") is not None else ""
    when = details.get("due")
    due = f" to {iso_text(when)}" if isinstance(when, int) else ""
    return f"{printable(what)}{of}{due}{by}, command {printable(str(details['command_id']))}{reason}"


def state_words(found: MessageState) -> str:
    """How a message stands with a subscription, for people."""
    due = (
        ""
        if found.due is None
        else f", {'was' if found.state in ('cancelled', 'replaced') else 'is'} due {iso_text(found.due)}"
    )
    again = f", redelivery {found.redelivery_count}" if found.redelivery_count else ""
    closed = found.closed_until
    state = _STATES[found.state] if closed is None else f"is held: the subscription is closed until {iso_text(closed)}"
    return f"{printable(found.subscription)}: {state}{due}{again}"

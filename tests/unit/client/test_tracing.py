"""The history of a message: found by key or position, told step by step, and how it stands; without Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.client.client import Client
from pipeline.client.commanding.commands import cancel, shift, undo
from pipeline.client.insight.trace import Trace, trace
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import append, open_table, path_of
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import (
    CLOSED,
    CONSUMER_EVENTS,
    DELIVERIES,
    HELD,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    SEGMENTS,
)
from state import Ack, Nack, Outstanding
from state.units import Ms
from tests.support.acknowledged import acknowledges, settled
from tests.support.client import (
    at,
    delivery_row,
    left_out_row,
    message_row,
    noticed,
    put,
    retry_row,
    run_row,
    taken,
)
from tests.support.settled import NOW, released
from tests.support.settled import at as positions

NOON = 1_700_000_000_000
SENT = NOON - 60_000
"""When the messages were sent, ms; they are due from noon on, a second between two."""
PLACES = [(1, 0), (1, 1), (1, 2), (4, 0)]
KEYS = ("it's", "other", "it's", "it's")


def row(number: int) -> dict[str, Any]:
    """A row of `messages`."""
    columns = {"message_key": KEYS[number], "properties": [("airline", "UA")], "payload": b"x" * number}
    return {**message_row(*PLACES[number], NOON + number * 1_000, published=SENT), **columns}


@pytest.fixture
def flights(root: str) -> str:
    """Four messages, and two subscriptions that ingest knows; `late` joined with the second ledger."""
    for name, since in (("s", 0), ("late", 4)):
        subscribe(root, Subscription("t", name))
        noticed(root, name, since)
    put(root, MESSAGES, *map(row, range(4)))
    return root


def publish(
    root: str, number: int, committed: int, *, subscription: str = "s", count: int = 0, started: int | None = None
) -> None:
    """A message becomes visible; the number of its batch is used twice, as by a new checkpoint."""
    job = {} if started is None else {"job_started_at": at(started)}
    delivered = {**delivery_row(row(number), subscription=subscription, count=count), "message_key": KEYS[number]}
    put(root, DELIVERIES, delivered)
    due = dict.fromkeys(("first_due", "last_due"), delivered["due_time"])
    for late in (86_400_000, 0):
        put(root, PUBLICATIONS, {"batch_id": 0, "committed_at": at(committed + late), "count": 1, **due, **job})


def said(found: Trace) -> list[tuple[str, int | None, str | None]]:
    """What happened, when after noon, to whom."""
    return [(each.what, None if each.at is None else each.at - NOON, each.subscription) for each in found.steps]


def states(found: Trace) -> dict[str, tuple[str, int | None, int]]:
    """How it stands: with whom, the word, when it comes after noon, with which count."""
    return {
        each.subscription: (each.state, None if each.due is None else each.due - NOON, each.redelivery_count)
        for each in found.states
    }


def of(root: str, number: int, **how: Any) -> Trace:  # noqa: ANN401 - options
    """The history of one message."""
    (found,) = trace(root, "t", position=PLACES[number], **how)
    return found


def test_a_job_that_was_started_after_a_message_was_due_is_why_it_is_late(flights: str) -> None:
    """One that ran by then is not; nor is it reasons where the job did not note it."""
    for number, started in ((0, NOON + 40), (1, NOON - 1), (2, None)):
        publish(flights, number, NOON + 3_000, started=started)
    reasons = [of(flights, number).steps[-1].details.get("job_started_at") for number in range(3)]
    assert reasons == [NOON + 40, None, None]


def test_a_message_is_found_by_its_key_or_its_position(flights: str) -> None:
    """The newest with the key, the oldest of them first; what was sent is told as it was."""
    assert [each.sent.position for each in trace(flights, "t", key="it's")] == [PLACES[0], PLACES[2], PLACES[3]]
    assert [each.sent.position for each in trace(flights, "t", key="it's", limit=2)] == [PLACES[2], PLACES[3]]
    sent = of(flights, 2).sent
    assert (sent.key, sent.properties, sent.payload_bytes) == ("it's", {"airline": "UA"}, 2)
    assert (sent.published, sent.deliver_at, sent.due) == (SENT, NOON + 2_000, NOON + 2_000)
    assert trace(flights, "t", key="nosuch") == trace(flights, "other", key="it's") == []
    assert trace(flights, "t", position=(9, 9)) == []


def test_a_message_that_waits_was_sent_and_accepted_and_is_nobodys_who_joined_later(flights: str) -> None:
    """Nothing else has happened."""
    found = of(flights, 0)
    assert said(found) == [("sent", -60_000, None), ("accepted", None, None)]
    assert states(found) == {"late": ("before", None, 0), "s": ("waits", 0, 0)}
    assert states(of(flights, 3, subscription="late")) == {"late": ("waits", 3_000, 0)}


def test_what_is_published_says_how_late_it_was(flights: str) -> None:
    """By the publication that is nearest to the release, counted from the bucket."""
    put(flights, REDELIVERY, run_row(1, 0, 2, NOON))
    assert states(of(flights, 0))["s"] == ("taken", None, 0)
    put(flights, HELD, run_row(1, 1, 2, NOON))
    assert [states(of(flights, number))["s"][0] for number in (0, 1)] == ["taken", "held"]
    publish(flights, 0, NOON + 50)
    found = of(flights, 0)
    assert said(found)[2:] == [("released", 0, "s"), ("published", 50, "s")]
    assert found.steps[-1].details == {"due": NOON + 24, "late_ms": 26, "cause": "due"}
    assert states(found)["s"] == ("published", None, 0)
    put(flights, DELIVERIES, {**delivery_row(row(1)), "batch_id": 7})
    assert of(flights, 1).steps[-1].details["late_ms"] is None


def test_commands_on_a_message_are_told_and_what_became_of_them(flights: str) -> None:
    """Who gave them and why; and whether dispatch left it out, or had taken it before."""
    done = cancel(flights, "t", where="entry_id < 2", by="ann", reason="snow")
    found = of(flights, 0)
    assert [(each.what, each.subscription) for each in found.steps][2:] == [("cancel", "s")]
    details = {"command_id": done.command_id, "by": "ann", "reason": "snow", "asked": "entry_id < 2"}
    assert found.steps[-1].details == details
    assert states(found)["s"] == ("cancelled", 0, 0)
    assert states(of(flights, 2))["s"] == ("waits", 2_000, 0)
    put(flights, REDELIVERY, run_row(1, 0, 1, NOON))
    refused = (left_out_row(1, entry, NOON, reason=why) for entry, why in ((1, "message_missing"), (2, "expired")))
    put(flights, REJECTED_DISPATCH, left_out_row(1, 0, NOON), *refused)
    assert states(of(flights, 2))["s"] == ("expired", None, 0)
    assert states(of(flights, 0))["s"] == ("cancelled", None, 0)
    assert states(of(flights, 1))["s"] == ("left_out", None, 0)
    assert ("left_out", 0, "s") in said(of(flights, 0))
    back = undo(flights, str(done.command_id))
    undone = [each for each in of(flights, 3).steps if each.what == "undo"]
    assert [each.details["undoes"] for each in undone] == [done.command_id] * 2
    assert [each.details["command_id"] for each in undone] == [back.command_id] * 2
    assert states(of(flights, 3)) == {"late": ("waits", 3_000, 0), "s": ("waits", 3_000, 0)}


def busy(root: str, state: Outstanding, version: int = 9) -> None:
    """A subscription that acknowledges, as settle knows it, up to a version of `redelivery`."""
    acknowledges(root, "busy", policies=Policies(ack=True, max_redeliveries=3))
    noticed(root, "busy", 0)
    settled(root, state, "busy", read={"released": version})


def event(kind: str, last: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - columns
    """A consumer says something of the first entries of ledger 1."""
    of = {"topic": "t", "subscription": "busy", "life": 1, "ledger_id": 1, "first_entry": 0, "last_entry": last}
    return {**of, "kind": kind, "consumer": "worker", "at": at(NOON + 100), "redelivery_count": 0, **more}


def test_an_acknowledging_subscription_tells_what_is_open_and_when_it_comes_again(flights: str) -> None:
    """Outstanding, waiting, settled, and not read by settle yet."""
    state = released((1, 0, 2))
    state.handle(Nack(positions((1, 0, 0)), 0), Ack(positions((1, 2, 2))), now=Ms(NOW))
    busy(flights, state)
    put(flights, REDELIVERY, run_row(1, 0, 2, NOON, subscription="busy"))
    put(flights, SEGMENTS, retry_row([(1, 0)], NOON + 60_000, "busy"))
    put(flights, CONSUMER_EVENTS, event("nack", 0, cause="nack", after_ms=5_000), event("renew", 0))
    found = of(flights, 0, subscription="busy")
    assert states(found) == {"busy": ("waits_again", 60_000, 1)}
    assert said(found)[2:] == [("released", 0, "busy"), ("nack", 100, "busy")]
    assert found.steps[-1].details == {"consumer": "worker", "cause": "nack", "after_ms": 5_000}
    assert [states(of(flights, number))["busy"][0] for number in (1, 2)] == ["taken", "settled"]
    publish(flights, 1, NOON + 50, subscription="busy")
    assert states(of(flights, 1))["busy"] == ("outstanding", None, 0)
    cancel(flights, "t", "busy", where="redelivery_count = 1")
    assert states(of(flights, 0))["busy"] == ("cancelled", 60_000, 1)
    publish(flights, 3, NOON + 3_050, subscription="busy")
    settled(flights, state, "busy", batch=1, read={"released": 0})
    assert states(of(flights, 3))["busy"] == ("published", None, 0)


def test_what_came_again_is_told_round_by_round_until_it_is_settled(flights: str) -> None:
    """Each with its redelivery count, and who said what."""
    busy(flights, Outstanding())
    rounds = [run_row(1, 0, 0, NOON + n * 1_000, subscription="busy", redelivery_count=n) for n in (0, 1)]
    put(flights, REDELIVERY, *rounds)
    more = {"redelivery_count": 1, "cause": "ack", "closed_at": at(NOON + 3_000), "batch_id": 0}
    closed = {name: rounds[0][name] for name in ("topic", "subscription", "life", "ledger_id", "first_entry")}
    put(flights, CLOSED, {**closed, "last_entry": 0, **more})
    put(flights, CONSUMER_EVENTS, event("ack", 0, at=at(NOON + 2_000), redelivery_count=None))
    found = of(flights, 0, subscription="busy")
    assert [(each.what, each.redelivery_count) for each in found.steps][2:] == [
        ("released", 0),
        ("released", 1),
        ("ack", None),
        ("closed", 1),
    ]
    assert states(found) == {"busy": ("settled", None, 1)}


def letter(position: str, topic: str = "t") -> dict[str, Any]:
    """A dead letter, as ingest took it."""
    origin = {"topic": topic, "subscription": "busy", "position": position, "redelivery_count": "3", "cause": "nack"}
    kept = [("airline", "UA"), *((f"delayline.{name}", text) for name, text in origin.items())]
    return {**message_row(7, 0, NOON, "t-busy-DLQ", published=NOON), "properties": kept, "message_key": "it's"}


def test_a_dead_letter_is_told_with_its_place(flights: str) -> None:
    """Only that of this message."""
    busy(flights, Outstanding())
    put(flights, REDELIVERY, run_row(1, 0, 2, NOON, subscription="busy", redelivery_count=3))
    put(flights, MESSAGES, letter("1:0"), {**letter("1:2", "elsewhere"), "entry_id": 1})
    last = of(flights, 0).steps[-1]
    assert (last.what, last.subscription, last.redelivery_count) == ("dead_letter", "busy", 3)
    assert last.details == {"topic": "t-busy-DLQ", "position": "7:0", "cause": "nack"}
    assert "dead_letter" not in {each.what for each in of(flights, 2).steps}


def test_what_ingest_refused_or_has_not_taken_has_no_position(flights: str) -> None:
    """What was taken from the inbox is told once."""
    send(flights, [OutgoingMessage("t", b"taken", key="k")])
    taken(flights, MESSAGES, 2, -1)
    send(
        flights,
        [
            OutgoingMessage("t", b"new", key="k"),
            OutgoingMessage("t", b"new", key="another"),
            OutgoingMessage("other", b"", key="k"),
        ],
    )
    refused = {"topic": "t", "message_key": "k", "reason": "too_late", "rejected_at": at(NOON), "batch_id": 0}
    put(flights, REJECTED_INGEST, refused)
    bad, new = trace(flights, "t", key="k")
    assert [each.what for each in bad.steps] == ["sent", "refused"]
    assert bad.steps[1].details == {"reason": "too_late"}
    assert (new.sent.payload_bytes, new.sent.position, [each.what for each in new.steps]) == (3, None, ["sent"])
    assert bad.states == new.states == ()


def test_what_waits_in_a_file_of_few_columns_is_found_by_its_key(flights: str) -> None:
    """Who appends to the inbox on Spark may leave columns out, and ingest takes what comes."""
    for rows in ({"topic": ["t"], "payload": [b"old"]}, {"topic": ["t"], "message_key": ["k"], "payload": [b"mine"]}):
        before = set(Path(path_of(flights, INBOX)).glob("*.parquet"))
        append(flights, INBOX, pa.table(rows))
        (file,) = set(Path(path_of(flights, INBOX)).glob("*.parquet")) - before
        # delta-rs writes the columns that are not given, too.
        pq.write_table(pa.table(rows), file)
    (found,) = trace(flights, "t", key="k")
    assert (found.sent.payload_bytes, found.sent.published, found.sent.properties) == (4, None, {})


def test_a_message_whose_row_retention_has_deleted_is_told_by_its_deliveries(flights: str) -> None:
    """And what is in neither is gone for good."""
    publish(flights, 0, NOON + 50)
    open_table(flights, MESSAGES).delete("entry_id = 0 AND ledger_id = 1")
    raise_to(Files(), flights, SettledMark(NOON + 1_000, 2, 1))
    assert [each.sent.position for each in trace(flights, "t", key="it's")] == [PLACES[0], PLACES[2], PLACES[3]]
    assert states(of(flights, 0))["s"] == ("published", None, 0)
    assert states(of(flights, 1))["s"] == ("gone", None, 0)
    assert states(of(flights, 2))["s"] == ("waits", 2_000, 0)


def test_another_life_has_a_history_of_its_own(flights: str) -> None:
    """What an earlier one got is told, and does not say how the message stands."""
    publish(flights, 0, NOON + 50)
    noticed(flights, "s", -1, marker=2)
    noticed(flights, "s", 0, marker=3)
    found = of(flights, 0)
    assert [(each.what, each.life) for each in found.steps][2:] == [("published", 1)]
    assert [(each.life, each.state) for each in found.states if each.subscription == "s"] == [(2, "waits")]


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({}, "key"),
        ({"key": "a", "position": (1, 0)}, "key"),
        ({"key": "\udcff"}, "key"),
        ({"key": "a", "limit": 0}, "limit"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(root: str, how: dict[str, Any], field: str) -> None:
    """Before anything is read."""
    with pytest.raises(BadValue) as refused:
        trace(root, "t", **how)
    assert refused.value.field == field


def test_files_that_cannot_have_the_position_are_not_opened(flights: str) -> None:
    """A warehouse may hold millions: a look at one message must not read them."""
    before = set(Path(path_of(flights, MESSAGES)).glob("*.parquet"))
    put(flights, MESSAGES, {**message_row(900, 0, NOON), "message_key": "k"})
    (fresh,) = set(Path(path_of(flights, MESSAGES)).glob("*.parquet")) - before
    fresh.unlink()
    assert of(flights, 0).sent.key == "it's"


def test_a_client_tells_the_history_of_what_it_received(flights: str) -> None:
    """By key, or by the position that an id has."""
    with Client(flights) as client:
        assert client.trace("t", "s", position=PLACES[0]) == trace(flights, "t", "s", position=PLACES[0])
        assert len(client.trace("t", key="it's", limit=1)) == 1


def test_what_has_another_due_time_waits_for_that_and_says_which_command_gave_it(flights: str) -> None:
    """The round that dispatch left out for it is no end; what it takes then is."""
    shift(flights, "t", "s", span=timedelta(hours=1), key="it's")
    put(flights, REDELIVERY, run_row(1, 0, 0, NOON))
    put(flights, REJECTED_DISPATCH, left_out_row(1, 0, NOON, reason="rescheduled"))
    found = of(flights, 0, subscription="s")
    assert states(found) == {"s": ("waits", 3_600_000, 0)}
    (step,) = [each for each in found.steps if each.what == "shift"]
    assert step.details["due"] == NOON + 3_600_000
    put(flights, REDELIVERY, run_row(1, 0, 0, NOON + 3_600_000) | {"round": 1, "cause": "rescheduled"})
    assert states(of(flights, 0, subscription="s")) == {"s": ("taken", None, 0)}

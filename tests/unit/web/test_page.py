"""The page, asked as a browser asks it: what it shows, what its forms do, whom it refuses. Its HTML is validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from urllib.parse import parse_qs

import pytest

pytest.importorskip("starlette", reason="the page needs the extra web")

from jobs.web.screens import SCREENS, foremost
from pipeline.client.choices import ConsumerType, InitialPosition
from pipeline.client.client import Client
from pipeline.client.exceptions import Timeout
from pipeline.client.insight.pending import Backlog, pending
from pipeline.client.subscribing.schedules import schedule, set_schedule
from pipeline.client.subscribing.subscriptions import registered
from pipeline.doctor.examine import Report
from pipeline.testing.warehouse import VirtualWarehouse, warehouse
from tests.support.page import Visitor, served

LATER = timedelta(hours=1)
HOSTILE = "<script>alert('k')</script>\"'&\u202e\x00\x1b[31m"
"""A text of a stranger."""


@pytest.fixture(scope="module")
def world() -> Iterator[VirtualWarehouse]:
    """A warehouse with two subscriptions, of which one acknowledges, and messages with texts of strangers."""
    with warehouse() as made:
        client = made.client()
        for name in ("mail", "audit"):
            client.subscribe("orders", name, ConsumerType.Shared, initial_position=InitialPosition.Earliest)
        made.run_until_idle()
        yield made


@pytest.fixture
def client(world: VirtualWarehouse) -> Client:
    """A client of it."""
    return world.client()


@pytest.fixture(scope="module")
def visitor(world: VirtualWarehouse) -> Iterator[Visitor]:
    """Somebody who may do everything."""
    with served(world.root, allow_commands=True) as made:
        yield made


def sent(client: Client, world: VirtualWarehouse, key: str, count: int = 1, payload: bytes = b"x") -> None:
    """Send messages with a key, which are taken."""
    producer = client.create_producer("orders")
    for number in range(count):
        producer.send(payload, partition_key=key, properties={"n": str(number)}, deliver_after=LATER)
    world.run_until_idle()


def test_the_numbers_of_the_page_are_those_of_the_tables(
    world: VirtualWarehouse, client: Client, visitor: Visitor
) -> None:
    """Also of a page that has looked before, and follows."""
    for count in (3, 4):
        sent(client, world, "counted", count)
        total = sum(each.count for each in pending(world.root).backlogs)
        overview = visitor.get("/")
        assert f"Pending {total:,} " in overview.words
        assert f"{total:,} messages; most, {total:,}, at" in overview.words
    assert all(visitor.get(path).status == 200 for path in SCREENS if path not in ("/subscription", "/message"))


def test_of_very_many_those_that_are_due_first_are_shown(
    world: VirtualWarehouse, client: Client, visitor: Visitor
) -> None:
    """And that there are more."""
    producer = client.create_producer("many")
    client.subscribe("many", "one", ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    for number in range(105):
        producer.send(b"", partition_key=f"m{number}", deliver_after=timedelta(minutes=200 - number))
    world.run_until_idle()
    shown = visitor.get("/messages", topic="many").words
    assert shown.count(" one m") == 100
    assert "m104" in shown
    assert "m4 " not in shown
    assert "There are more" in shown


def test_what_matches_is_cancelled_after_a_look_and_taken_back(
    world: VirtualWarehouse, client: Client, visitor: Visitor
) -> None:
    """The number, the times, examples and a reason come before anything is done."""
    sent(client, world, "bulk", 6)
    shown = visitor.get("/messages", topic="orders", key="bulk", subscription="mail")
    assert shown.words.count(" bulk ") == 6
    look = visitor.send(shown.form("/command"), kind="cancel")
    assert "Cancel 6 of orders?" in look.words
    assert "mail: 6" in look.words
    before = pending(world.root, "orders", "mail").backlogs[0].count
    refused = visitor.send(look.form("/command"), sure="yes", by="ann", reason=" ")
    assert (refused.status, "why is kept with the command" in refused.words) == (400, True)
    assert pending(world.root, "orders", "mail").backlogs[0].count == before
    sure = {"sure": "yes", "once": look.once, "by": "ann", "reason": "snow"}
    done = visitor.send(look.form("/command"), **sure)
    assert (done.status, done.headers["location"]) == (303, "/commands")
    assert visitor.send(look.form("/command"), **sure).status == 409
    assert pending(world.root, "orders", "mail").backlogs[0].count == before - 6
    commands = visitor.get("/commands")
    assert "cancel" in commands.words
    assert "orders ann snow" in commands.words
    look = visitor.send(commands.form("/undo"))
    assert "Take back 6 of orders?" in look.words
    assert visitor.send(look.form("/undo"), sure="yes", by="bob", reason="thaw").status == 303
    assert pending(world.root, "orders", "mail").backlogs[0].count == before


@pytest.mark.parametrize(
    ("kind", "more", "minutes"), [("shift", {"span": "+30m"}, 90), ("reschedule", {"to": "in 2h"}, 120)]
)
def test_one_message_gets_another_time(
    world: VirtualWarehouse, client: Client, visitor: Visitor, kind: str, more: dict[str, str], minutes: int
) -> None:
    """From the page with its history."""
    sent(client, world, kind)
    history = visitor.get("/message", topic="orders", key=kind)
    look = visitor.send(history.form("/command"), kind=kind, **more)
    assert f"in {minutes // 60}h" in look.words or f"in {(minutes - 1) // 60}h {(minutes - 1) % 60}m" in look.words
    assert "to=in" not in look.form("/command")[0]
    visitor.send(look.form("/command"), sure="yes", by="ann", reason="later")
    assert f"{kind} to " in visitor.get("/message", topic="orders", key=kind).words


def test_a_subscription_is_paused_given_a_rate_and_begun_anew(
    world: VirtualWarehouse, client: Client, visitor: Visitor
) -> None:
    """By forms of its page, which says what held before."""
    client.subscribe("orders", "night", ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    world.run_until_idle()
    name = {"topic": "orders", "subscription": "night"}
    policy = visitor.get("/subscription", **name).form("/policy")
    assert visitor.send(policy, set="pause").status == 303
    assert "paused, 0 held" in visitor.get("/subscription", **name).words
    visitor.send(policy, set="rate", rate="50")
    visitor.send(policy, set="resume")
    assert "paused = true, max_rate = 50" in visitor.get("/subscription", **name).words
    policies = registered(world.root, "orders", "night").policies
    assert (policies.paused, policies.max_rate) == (False, 50)
    assert visitor.send(policy, set="rate", rate="9" * 5_000).status == 400
    look = visitor.send(visitor.get("/subscription", **name).form("/seek"), to="time", time="1h ago")
    assert "ago" not in look.form("/seek")[0]
    look = visitor.send(visitor.get("/subscription", **name).form("/seek"), to="latest")
    assert "Begin orders / night anew?" in look.words
    visitor.send(look.form("/seek"), sure="yes")
    world.run_until_idle()
    assert pending(world.root, "orders", "night").backlogs[0].count == 0


def test_a_schedule_is_paused_and_sends_one_after_a_look(
    world: VirtualWarehouse, client: Client, visitor: Visitor
) -> None:
    """Sent twice, a form is taken once; and a name of a stranger is a text."""
    name = f"daily {HOSTILE[:20]}"
    set_schedule(world.root, name, "recurs", payload="Stand up: {occurrence}", cron="0 9 * * *", zone="Europe/Rome")
    consumer = client.subscribe("recurs", "team")
    named = {"part": "daily"}
    assert "followed Pause Send now" in visitor.get("/schedules", **named).words
    assert visitor.send(visitor.get("/schedules", **named).form("/schedule")).status == 303
    assert "paused Resume Send now" in visitor.get("/schedules", **named).words
    form = visitor.get("/schedules", **named).form("/schedule")
    look = visitor.send((form[0].replace("set=resume", "set=run-now"), form[1]))
    assert "Stand up: {occurrence}" in look.words
    world.run_until_idle()
    with pytest.raises(Timeout):
        consumer.receive(1)
    for _ in range(2):
        visitor.send(look.form("/schedule"), sure="yes", once=look.once)
        world.run_until_idle()
    assert consumer.receive(5_000).data().startswith(b"Stand up: 2")
    with pytest.raises(Timeout):
        consumer.receive(1)
    assert visitor.send((form[0].replace("set=resume", "set=no"), form[1])).status == 400
    visitor.send(form)
    assert not schedule(world.root, name).paused


def test_it_foresees_what_comes_and_what_if(world: VirtualWarehouse, client: Client, visitor: Visitor) -> None:
    """What `forecast` tells; a pause lets all of it wait."""
    sent(client, world, "foreseen", 3)
    foreseen = visitor.get("/forecast", topic="orders", subscription="audit", hours=2)
    count = sum(each.count for each in pending(world.root, "orders", "audit").backlogs)
    assert f"orders audit {count} {count} 0 0 " in foreseen.words
    paused = visitor.get("/forecast", topic="orders", subscription="audit", hours=2, pause="3h")
    assert f"orders audit {count} 0 0 {count} " in paused.words
    assert visitor.get("/forecast", hours="many").status == 400
    assert visitor.get("/forecast", max_rate="0").status == 400


def test_dead_letters_are_put_back(world: VirtualWarehouse, client: Client, visitor: Visitor) -> None:
    """Their page says how many there are, and why."""
    client.set_policies("orders", "mail", max_redeliveries=0)
    consumer = client.subscribe("orders", "mail", ConsumerType.Shared)
    client.create_producer("orders").send(b"bad", partition_key="dead")
    world.run_until_idle()
    consumer.negative_acknowledge(consumer.receive(30_000))
    world.advance(minutes=2)
    letters = visitor.get("/dead-letters")
    assert "orders / mail: 1 in orders-mail-DLQ" in letters.words
    assert " dead nack " in letters.words
    assert visitor.send(letters.form("/put-back"), limit="").status == 400
    assert visitor.send(letters.form("/put-back"), limit="1").status == 303
    world.run_until_idle()
    assert "No dead letter." in visitor.get("/dead-letters").words
    assert consumer.receive(30_000).data() == b"bad"
    consumer.close()


def test_texts_of_strangers_are_texts(world: VirtualWarehouse, client: Client, visitor: Visitor) -> None:
    """Keys, properties and payloads, in pages and in forms."""
    key = HOSTILE.replace("\x00", "")
    sent(client, world, key, payload=HOSTILE.encode())
    pages = [visitor.get("/messages", topic="orders", key=key), visitor.get("/message", topic="orders", key=key)]
    place = parse_qs(pages[1].form("/command")[0])["positions"][0]
    pages += [visitor.get("/message", topic="orders", position=place, payload=form) for form in ("text", "json", "hex")]
    for each in pages:
        assert each.status == 200
        assert "<script>alert" not in each.text
        assert "\x1b" not in each.text
    assert "<script>alert('k')</script>" in pages[0].words
    assert "<script>alert('k')</script>" in pages[2].words
    assert "It is no JSON." in pages[3].words
    assert HOSTILE.encode()[:4].hex() in pages[4].text


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        ("/messages", {"where": "nothing = 1"}, "nothing"),
        ("/messages", {"from": "soon"}, "soon"),
        ("/messages", {"where": "1" + "+1" * 30_000}, "10,000 characters"),
        ("/messages", {"where": "(SELECT count(*) FROM messages) > 0"}, "without a query"),
        ("/messages", {"where": "EXISTS (FROM messages)"}, "without a query"),
        ("/forecast", {"hours": "1" * 5_000}, "a whole number"),
        ("/message", {"topic": "orders", "position": "x"}, "LEDGER:ENTRY"),
        ("/message", {"topic": "orders"}, "a position or a key"),
        ("/subscription", {"topic": "orders", "subscription": "nobody"}, "nobody"),
    ],
)
def test_what_cannot_be_followed_is_said(visitor: Visitor, path: str, query: dict[str, str], text: str) -> None:
    """In a sentence on a page, and the page goes on."""
    answer = visitor.get(path, **query)
    assert answer.status == 400
    assert text in answer.words
    assert visitor.get("/nowhere").status == 404


def test_of_very_many_subscriptions_a_page_shows_some(
    client: Client, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where the others are; they are found by what is in the topic or the name."""
    for name in ("first", "second"):
        client.subscribe("paged", name, ConsumerType.Shared)
    monkeypatch.setattr("jobs.web.screens._ROWS", 1)
    first, second = (visitor.get("/subscriptions", part="paged", page=number) for number in (1, 2))
    assert ("paged first" in first.words, "paged second" in first.words) == (True, False)
    assert ("paged first" in second.words, "paged second" in second.words) == (False, True)
    assert "page 1 of 2" in first.words
    assert "Previous" in second.words
    assert "Next" not in second.words
    found = visitor.get("/subscriptions", part="secon")
    assert "paged second" in found.words
    assert "1 of " in found.words
    assert visitor.get("/subscriptions", part="nobody").status == 200


def test_of_very_many_subscriptions_the_overview_shows_what_somebody_should_look_at() -> None:
    """What is paused, held or wrong, and then what has most; few are shown as they are."""
    calm = [Backlog("t", f"s{number}", number, None, {}) for number in range(5)]
    paused, held = replace(calm[0], paused=True), replace(calm[1], held=1)
    assert foremost(calm, 5) == calm
    assert foremost([*calm[2:], paused, held], 3) == [held, paused, calm[4]]


def test_a_condition_may_have_any_words_in_its_texts(visitor: Visitor) -> None:
    """A key is what somebody made of it."""
    assert visitor.get("/messages", where="message_key = 'select with values'").status == 200


def test_a_page_that_cannot_be_made_is_said_and_the_next_one_is_made(
    world: VirtualWarehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The browser is told nothing of what is inside; the log is."""

    def broken(*_: object) -> None:
        message = "inside"
        raise ZeroDivisionError(message)

    monkeypatch.setitem(SCREENS, "/commands", broken)
    with served(world.root) as visitor:
        answer = visitor.get("/commands")
        assert (answer.status, "inside" in answer.text) == (500, False)
        assert "page /commands" in caplog.text
        assert visitor.get("/").status == 200


def test_it_only_shows_unless_actions_are_allowed(world: VirtualWarehouse) -> None:
    """No form, and nobody who answers one."""
    with served(world.root) as visitor:
        for path in ("/", "/subscriptions", "/messages?topic=orders", "/commands", "/dead-letters"):
            assert 'method="post"' not in visitor.get(path).text
        assert "Read-only" in visitor.get("/").words
        assert visitor.post("/policy", topic="orders", subscription="mail", set="pause").status in (404, 405)


def test_it_takes_forms_of_its_own_alone(world: VirtualWarehouse, visitor: Visitor) -> None:
    """Another page, in the same browser or under another name of this machine, reaches nothing."""
    form = {"topic": "orders", "subscription": "mail", "set": "pause"}
    _, secret = visitor.get("/subscriptions").form("/policy")
    assert visitor.post("/policy", **form).status == 403
    assert visitor.post("/policy", secret="x" * 32, **form).status == 403
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert visitor.post("/policy", elsewhere, secret=secret, **form).status == 403
    assert visitor.get("/", {"Host": "evil.example:80"}).status == 421
    picture = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert visitor.get("/messages", picture).status == 403
    assert visitor.get("/messages", picture | {"Sec-Fetch-Mode": "navigate"}).status == 200
    assert not registered(world.root, "orders", "mail").policies.paused
    answer = visitor.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert visitor.post("/policy", secret=secret, more="x" * 1_100_000, **form).status == 413


TOKEN = "tell nobody"  # noqa: S105 - of a test


def test_with_a_token_it_shows_itself_to_who_has_it(world: VirtualWarehouse) -> None:
    """By a cookie that a script cannot read, or by a header."""
    with served(world.root, token=TOKEN, host="10.0.0.1", base="/delayline") as visitor:
        assert visitor.get("/").headers["location"] == "/delayline/enter"
        asked = visitor.get("/delayline/messages", topic="orders").headers["location"]
        assert asked == "/delayline/enter?then=%2Fmessages%3Ftopic%3Dorders"
        assert world.root not in visitor.get("/enter").text + visitor.get("/static/nothing").text
        assert visitor.post("/enter?then=//evil.example", token=TOKEN).headers["location"] == "/delayline/"
        assert visitor.post(asked.removeprefix("/delayline"), token=TOKEN).headers["location"] == (
            "/delayline/messages?topic=orders"
        )
        assert visitor.get("/healthz").text == "ok\n"
        assert visitor.post("/enter", token=TOKEN[1:]).status == 403
        entered = visitor.post("/enter", token=TOKEN)
        cookie = entered.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=lax", "Path=/delayline"} <= set(cookie.split("; "))
        shown = visitor.get("/delayline", {"Cookie": cookie.partition(";")[0]})
        assert (shown.status, 'href="/delayline/commands"' in shown.text) == (200, True)
        assert visitor.get("/", {"Authorization": "Bearer tell nobody"}).status == 200
        assert visitor.get("/", {"Cookie": f"{cookie.partition('=')[0]}={TOKEN}"}).status == 303
        assert visitor.get("/", {"Authorization": "Bearer tell everybody"}).status == 401


def test_a_script_that_follows_gets_what_is_inside_the_frame(visitor: Visitor) -> None:
    """Not a whole page within a page."""
    fragment = visitor.get("/", {"X-Fragment": "1"})
    assert fragment.text.lstrip().startswith("<h1>Overview</h1>")
    assert "<html" not in fragment.text


def test_a_page_is_shown_before_the_doctor_has_finished(
    world: VirtualWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """She takes long in a warehouse that has delivered much. The page says so, and then what she found."""
    ended, examined = Event(), Report((), {"inbox": 7})
    monkeypatch.setattr("pipeline.insight.overview.examine", lambda *_: examined if ended.wait(60) else None)
    with served(world.root) as visitor:
        for path in ("/", "/system"):
            assert "The doctor has not finished yet" in visitor.get(path).words
        ended.set()
        while "has not finished yet" in (found := visitor.get("/system")).words:
            pass
        assert "Nothing is wrong." in found.words
        assert "inbox 7" in found.words

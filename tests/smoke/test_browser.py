"""The page in a browser: what scripts do, what it asks for, how it looks; with a Chromium of the system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the browser is steered by playwright")
pytest.importorskip("starlette", reason="the page needs the extra web")

from playwright.sync_api import expect, sync_playwright

from pipeline.client.choices import ConsumerType, InitialPosition
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.schedules import schedule, set_schedule
from pipeline.delta.deltars import open_table, query
from pipeline.testing.warehouse import VirtualWarehouse, warehouse
from schemas import MESSAGES
from tests.support.page import Visitor, served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; Debian: apt-get install chromium")
SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
SCREENS = (
    "/", "/subscriptions", "/subscription?topic=orders&subscription=mail", "/messages?topic=orders&key=k1",
    "/message?topic=orders&key=k1", "/forecast", "/commands", "/dead-letters", "/system", "/schedules",
)  # fmt: skip
WAITS_MS = 30_000


@pytest.fixture(scope="module")
def world() -> Iterator[VirtualWarehouse]:
    """Messages wait for a subscription."""
    with warehouse() as made:
        client = made.client()
        client.subscribe("orders", "mail", ConsumerType.Shared, initial_position=InitialPosition.Earliest)
        send(made, 12)
        later = made.now + timedelta(days=180)
        for name in ("stand-up", "report"):
            set_schedule(
                made.root, name, "reminders", payload="At {occurrence}", cron=f"0 9 {later.day} {later.month} *"
            )
        yield made


def send(world: VirtualWarehouse, count: int) -> None:
    """Messages of four keys, due within the hour."""
    producer = world.client().create_producer("orders")
    for number in range(count):
        producer.send(b"{}", partition_key=f"k{number % 4}", deliver_after=timedelta(minutes=5 + number))
    world.run_until_idle()


def due(world: VirtualWarehouse) -> int:
    """How many messages of schedules are due; what they send by themselves is due in half a year."""
    world.run_until_idle()
    rows = query("SELECT due_time FROM t WHERE topic = 'reminders'", t=open_table(world.root, MESSAGES))
    return sum(row["due_time"] <= world.now for row in rows)


@pytest.fixture(scope="module")
def visitor(world: VirtualWarehouse) -> Iterator[Visitor]:
    """The page, with actions."""
    with served(world.root, allow_commands=True) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    with sync_playwright() as steered:
        browser = steered.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """What a browser complains of, and what it asks of others."""
    return []


def opened(chromium: Any, visitor: Visitor, complaints: list[str], **how: Any) -> Any:  # noqa: ANN401 - of playwright
    """A page of a browser, which is watched."""
    page = chromium.new_context(**how).new_page()
    page.set_default_timeout(WAITS_MS)
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(visitor.address) else complaints.append(asked.url))
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_each_screen_fits_and_asks_nobody_else(
    chromium: Any,  # noqa: ANN401 - of playwright
    visitor: Visitor,
    complaints: list[str],
    size: str,
    theme: str,
) -> None:
    """On a desk and on a phone, in both themes; no error on the console."""
    page = opened(chromium, visitor, complaints, viewport=SIZES[size], color_scheme=theme)
    backs = set()
    for path in SCREENS:
        assert page.goto(visitor.address + path).status == 200
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], path
        backs.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert complaints == []
    assert backs == {"rgb(251, 251, 252)" if theme == "light" else "rgb(20, 23, 27)"}
    page.context.close()


def test_a_page_that_is_open_follows_until_it_is_paused(
    chromium: Any,  # noqa: ANN401 - of playwright
    visitor: Visitor,
    complaints: list[str],
    world: VirtualWarehouse,
) -> None:
    """Without being asked for again."""
    page = opened(chromium, visitor, complaints)
    page.goto(visitor.address)
    before = pending(world.root).backlogs[0].count
    assert page.text_content("#backlog") == f"{before}"
    send(world, 3)
    expect(page.locator("#backlog")).to_have_text(f"{before + 3}", timeout=WAITS_MS)
    page.click("#updates")
    assert page.text_content("#updates") == "Resume updates"
    page.click("#updates")
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("script", [True, False], ids=["with scripts", "without"])
def test_some_are_cancelled_after_a_look_and_taken_back(
    chromium: Any,  # noqa: ANN401 - of playwright
    visitor: Visitor,
    complaints: list[str],
    world: VirtualWarehouse,
    *,
    script: bool,
) -> None:
    """By keyboard and mouse, as a person does."""
    page = opened(chromium, visitor, complaints, java_script_enabled=script)
    before = pending(world.root).backlogs[0].count
    page.goto(f"{visitor.address}/messages")
    page.fill("input[name=topic]", "orders")
    page.fill("input[name=key]", "k2")
    page.press("input[name=key]", "Enter")
    page.click("text=Look first")
    count = int(page.text_content("h1").split()[1])
    page.fill("input[name=by]", "ann")
    page.fill("input[name=reason]", "snow")
    page.click("text=Do it")
    assert "snow" in page.text_content("table")
    assert pending(world.root).backlogs[0].count == before - count < before
    page.click("text=Take back")
    page.fill("input[name=by]", "bob")
    page.fill("input[name=reason]", "thaw")
    page.click("text=Do it")
    assert "thaw" in page.text_content("table")
    assert pending(world.root).backlogs[0].count == before
    assert complaints == []
    page.context.close()


def test_a_subscription_is_paused_and_goes_on(
    chromium: Any,  # noqa: ANN401 - of playwright
    visitor: Visitor,
    complaints: list[str],
) -> None:
    """By one button."""
    page = opened(chromium, visitor, complaints)
    page.goto(f"{visitor.address}/subscriptions")
    page.click("button:text-is('Pause')")
    assert "paused" in page.text_content("table")
    page.click("button:text-is('Resume')")
    assert "paused" not in page.text_content("table")
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("script", [True, False], ids=["with scripts", "without"])
def test_a_schedule_is_paused_and_sends_one_message_after_a_look(
    chromium: Any,  # noqa: ANN401 - of playwright
    visitor: Visitor,
    complaints: list[str],
    world: VirtualWarehouse,
    *,
    script: bool,
) -> None:
    """It is found by its name; the other schedule is as it was."""
    page = opened(chromium, visitor, complaints, java_script_enabled=script)
    before = due(world)
    page.goto(f"{visitor.address}/schedules")
    page.fill("input[name=part]", "stand")
    page.press("input[name=part]", "Enter")
    assert page.locator("table tbody tr").count() == 1
    page.click("button:text-is('Pause')")
    assert [schedule(world.root, name).paused for name in ("stand-up", "report")] == [True, False]
    page.goto(f"{visitor.address}/schedules?part=stand")
    page.click("button:text-is('Resume')")
    assert not schedule(world.root, "stand-up").paused
    page.goto(f"{visitor.address}/schedules?part=stand")
    page.click("button:text-is('Send now')")
    assert "At {occurrence}" in page.text_content("pre")
    assert due(world) == before
    page.click("button:text-is('Send now')")
    assert due(world) == before + 1
    assert complaints == []
    page.context.close()

"""The program of docs/client.md, as it stands there, on a warehouse whose service turns when it is waited for."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import public
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.delta.deltars import open_table, query
from schemas import INBOX, MESSAGES
from tests.support import consumed
from tests.support.client import message_row, put
from tests.support.modules import ROOT

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> consumed.World:
    """A warehouse whose service has taken two messages, and delivers one when a consumer waits for it."""
    monkeypatch.setattr(consumed, "TOPIC", "orders")
    monkeypatch.setattr(consumed, "SUBSCRIPTION", "reminders")
    world = consumed.World(str(tmp_path))
    engine = world.process()
    put(world.root, MESSAGES, message_row(1, 0, 1, "orders"), message_row(1, 1, 1 << 41, "orders"))

    def turn() -> None:
        world.run(2)
        if not world.settle.open:
            world.dispatch.deliver((1, 0))

    monkeypatch.setattr(engine, "wake", turn)
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: engine)
    monkeypatch.setitem(sys.modules, "delayline", public)
    return world


def test_the_program_of_the_page_produces_consumes_and_reads(
    world: consumed.World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words are those of the reference's documentation."""
    (text,) = PROGRAM.findall((ROOT / "docs" / "client.md").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(text.replace("file:///data/warehouse", f"file://{world.root}"), names)  # noqa: S102 - our own page
    assert capsys.readouterr().out.splitlines() == ["1.0 {}", "(1,0,-1,-1)", "(1,1,-1,-1)"]
    sent = query("SELECT payload, message_key, deliver_at IS NULL AS at_once FROM i", i=open_table(world.root, INBOX))
    assert sorted(tuple(each.values()) for each in sent) == [(b"pay", "order-1", False), (b"pay now", None, True)]
    (line,) = subscriptions(world.root)
    assert (line.topic, line.name, line.type, line.start) == ("orders", "reminders", "shared", "earliest")
    assert (line.policies.max_redeliveries, line.policies.retry_min_ms) == (3, 60_000)

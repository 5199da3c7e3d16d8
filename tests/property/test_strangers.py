"""Strangers append rows of any bytes and numbers to the tables that are open to them, beside those who do it right.

Ingest, dispatch, settle and the clients are the real ones, without a JVM (`tests.support.stages`). Whatever is
appended, no stage ends and no client fails; each row of `inbox` becomes a message or is listed; and what belongs to a
topic that no stranger names comes as if nobody else were there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.commanding.commands import cancel
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.insight.pending import pending, pending_by_key
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.deadletters import dead_letters
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.client.tables.deliveries import Deliveries
from pipeline.client.tables.partitions import partition_counts
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.subscriptions.policies import Policies
from schemas import (
    CONSUMER_EVENTS,
    CURSOR_HEAD,
    CURSORS,
    DELIVERIES,
    INBOX,
    MESSAGES,
    REJECTED_INGEST,
    REJECTED_SETTLE,
    SEGMENTS,
    SUBSCRIPTIONS,
    Table,
)
from tests.support import strangers
from tests.support.examined import wrong
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
OWN = "ours"
"""A topic that no stranger names."""
BROKEN = strangers.BROKEN[0]
Rows = list[tuple[str, list[strangers.Row]]]
"""Rows, by the name of their table."""
TABLES = {table.name: table for table in strangers.OPEN_TABLES}

drawn: st.SearchStrategy[Rows] = st.lists(
    st.sampled_from(sorted(TABLES)).flatmap(
        lambda name: st.tuples(st.just(name), st.lists(strangers.rows_of(TABLES[name]), min_size=1, max_size=3))
    ),
    min_size=1,
    max_size=4,
)
LONG = settings.get_profile("default").max_examples < settings().max_examples
EXAMPLES = 1_000 if LONG else 3
"""An example takes about a second."""


def clients(root: str) -> dict[str, Callable[[], object]]:
    """What programs and commands ask of a warehouse, by name."""
    return {
        "pending": lambda: pending(root),
        "pending by key": lambda: pending_by_key(root, OWN, "plain"),
        "trace": lambda: trace(root, OWN, key="k"),
        "receive": lambda: list(Deliveries(root).take(OWN, "plain")),
        "cancel": lambda: cancel(root, OWN, "plain", where="message_key = 'k'", dry_run=True),
        "commands": lambda: outcomes(root),
        "dead letters": lambda: list(dead_letters(root, f"{OWN}-s-DLQ")),
        "topics": lambda: (partition_counts(root), subscriptions(root)),
        "doctor": lambda: wrong(root),
    }


class Ours:
    """Stages, two subscriptions, and what they get."""

    def __init__(self, folder: str) -> None:
        """One of them acknowledges."""
        self.stages = Stages(f"{folder}/warehouse")
        self.root = self.stages.root
        for name, ack in (("s", True), ("plain", False)):
            subscribe(self.root, Subscription(OWN, name, tick_ms=1, policies=Policies(ack=ack)))
        self.stages.instant = T0
        assert self.stages.ingest()

    def run(self, *rows: dict[str, Any]) -> None:
        """All stages, one after the other."""
        stages = self.stages
        stages.instant += 1_000
        assert stages.ingest(*rows)
        stages.schedule.step(stages.instant)
        while stages.has_dispatch:
            assert stages.dispatch()
        assert stages.settle()

    def acknowledge(self, payload: str) -> None:
        """A consumer is done with a message."""
        (row,) = (r for r in self.rows(DELIVERIES, f"subscription = 's' AND payload = X'{payload.encode().hex()}'"))
        named = {name: row[name] for name in ("topic", "subscription", "life", "ledger_id")}
        run = {"first_entry": row["entry_id"], "last_entry": row["entry_id"], "kind": "ack", "at": at(0)}
        append(self.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [named | run]))

    def rows(self, table: Table, where: str) -> list[dict[str, Any]]:
        """Rows of a table of our topic."""
        return query(f"SELECT * FROM t WHERE topic = '{OWN}' AND {where}", t=open_table(self.root, table))  # noqa: S608

    @property
    def delivered(self) -> Counter[tuple[str, bytes]]:
        """What came, and how often."""
        return Counter((row["subscription"], row["payload"]) for row in self.rows(DELIVERIES, "true"))

    @property
    def outstanding(self) -> int:
        """What is not acknowledged."""
        heads = self.rows(CURSORS, f"subscription = 's' AND block = {CURSOR_HEAD}")
        return int(max(heads, key=lambda row: row["batch_id"])["outstanding"])


def refused(root: str) -> list[dict[str, Any]]:
    """Rows of `inbox` that are listed as refused; of lines of the registry it says other things."""
    condition = "reason NOT IN ('tick_changed', 'tick_out_of_range', 'bad_name', 'bad_start', 'topic_policy')"
    return query(f"SELECT reason FROM t WHERE {condition}", t=open_table(root, REJECTED_INGEST))  # noqa: S608


@settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate, Phase.shrink])
@given(before=drawn, later=drawn)
@example(
    before=[
        ("inbox", [{"topic": b"t", "message_key": BROKEN}, {"topic": BROKEN}]),
        ("inbox", [{"topic": b"t", "properties": {b"p": BROKEN}}, {"topic": b"t", "properties": {BROKEN: None}}]),
        ("subscriptions", [{"topic": b"t", "subscription": BROKEN, "active": True, "tick_ms": 1}]),
    ],
    later=[
        ("consumer_events", [{"kind": BROKEN, "topic": OWN.encode(), "subscription": b"s"}, {"topic": BROKEN}]),
        ("commands", [{"kind": b"cancel", "command_id": BROKEN, "topic": OWN.encode() + BROKEN, "subscription": b"s"}]),
    ],
)  # fmt: skip
def test_strangers_stop_nobody_and_touch_nothing_of_others(before: Rows, later: Rows) -> None:
    """One row that Spark wrote with a text that is no UTF-8 ended the job at each start."""
    folder = mkdtemp()
    try:
        play(Ours(folder), before, later)
    finally:
        rmtree(folder)


def play(ours: Ours, before: Rows, later: Rows) -> None:
    """Strangers come before and after our messages."""
    sent = 0
    for number, rows in enumerate((before, later)):
        ours.run({**message(f"a{number}", OWN), "message_key": "k"})
        for name, some in rows:
            strangers.put(ours.root, TABLES[name], *some)
            sent += len(some) * (TABLES[name] is INBOX)
        ours.acknowledge(f"a{number}")
        ours.run(message(f"b{number}", OWN))
    for stage in ("ingest", "dispatch", "settle"):
        ours.stages.restart(stage)
    ours.run()
    payloads = [f"{letter}{number}".encode() for letter in "ab" for number in range(2)]
    assert ours.delivered == Counter({(name, each): 1 for name in ("s", "plain") for each in payloads})
    assert ours.outstanding == 2
    for what, ask in clients(ours.root).items():
        assert ask() is not None, what
    (taken,) = query("SELECT COUNT(*) AS n FROM t", t=open_table(ours.root, MESSAGES))
    assert taken["n"] + len(refused(ours.root)) == sent + 4


def test_what_cannot_be_followed_is_listed(tmp_path: Path) -> None:
    """Whoever wrote it finds out; texts are UTF-8 in what is listed, so that it stops nobody in turn."""
    ours = Ours(str(tmp_path))
    ours.run()
    own = {"topic": OWN.encode(), "subscription": b"s", "kind": b"ack"}
    strangers.put(ours.root, CONSUMER_EVENTS, own | {"kind": BROKEN}, own | {"subscription": BROKEN}, {})
    strangers.put(ours.root, INBOX, {"topic": OWN.encode(), "message_key": b"a" + BROKEN, "payload": b"x"})
    strangers.put(ours.root, SUBSCRIPTIONS, own | {"subscription": BROKEN, "active": True, "tick_ms": 1})
    ours.run()
    found = query(
        "SELECT reason, kind, subscription FROM t ORDER BY reason, kind", t=open_table(ours.root, REJECTED_SETTLE)
    )
    assert [(row["reason"], row["kind"], row["subscription"]) for row in found] == [
        ("not_acknowledging", "ack", "\ufffd"),
        ("not_acknowledging", None, None),
        ("unknown_kind", "\ufffd", "s"),
    ]
    found = query("SELECT reason, message_key FROM t ORDER BY reason", t=open_table(ours.root, REJECTED_INGEST))
    assert [(row["reason"], row["message_key"]) for row in found] == [
        ("bad_name", None),
        ("key_not_utf8", "a\ufffd"),
    ]


def test_a_file_that_is_too_large_is_listed_and_the_others_count(tmp_path: Path) -> None:
    """One long text in a file of some kB, written a million times, ended settle at each start."""
    ours = Ours(str(tmp_path))
    ours.run(message("a", OWN), message("b", OWN))
    strangers.put(ours.root, CONSUMER_EVENTS, {"kind": b"ack", "topic": OWN.encode(), "consumer": b"x" * 20_000})
    ours.acknowledge("a")
    ours.run()
    assert ours.outstanding == 1
    found = query("SELECT reason FROM t", t=open_table(ours.root, REJECTED_SETTLE))
    assert [row["reason"].partition(":")[0] for row in found] == ["file_too_large"]


def test_a_cause_that_nobody_knows_counts_as_a_failure(tmp_path: Path) -> None:
    """Each cause is a series of the metrics, and a hundred thousand of them were a page of 35 MB."""
    ours = Ours(str(tmp_path))
    ours.run(message("a", OWN))
    (row,) = ours.rows(DELIVERIES, "subscription = 's'")
    named = {name: row[name] for name in ("life", "ledger_id", "redelivery_count")}
    run = {"first_entry": row["entry_id"], "last_entry": row["entry_id"], "topic": OWN, "subscription": "s"}
    strangers.put(ours.root, CONSUMER_EVENTS, named | run | {"kind": "nack", "cause": "whatever"})
    ours.run()
    assert [row["cause"] for row in ours.rows(SEGMENTS, "kind = 'retry'")] == ["nack"]

"""What is pending, counted without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.insight.pending import Backlog, pending, pending_by_key
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.delta.deltars import open_table, path_of
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import SettledMark, raise_to
from schemas import DELIVERIES, INBOX, LEFT, MESSAGES, REJECTED_DISPATCH, REJECTED_INGEST, SUBSCRIPTIONS
from tests.support.client import (
    MINUTE,
    at,
    backlog,
    delivery_row,
    left_out_row,
    message_row,
    new_warehouse,
    noticed,
    put,
    taken,
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def test_pending_is_what_was_accepted_less_what_was_delivered(root: str) -> None:
    """Count, next due time and minutes come from the two tables alone."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    rows = [message_row(1, 0, 1_000), message_row(1, 1, 61_500), message_row(2, 0, 61_400), message_row(2, 1, 200_000)]
    put(root, MESSAGES, *rows)
    assert backlog(root) == Backlog("t", "s", 4, 1_000, {0: 1, MINUTE: 2, 3 * MINUTE: 1})
    put(root, DELIVERIES, delivery_row(rows[0]), delivery_row(rows[2]))
    assert backlog(root) == Backlog("t", "s", 2, 61_500, {MINUTE: 1, 3 * MINUTE: 1})
    put(root, DELIVERIES, delivery_row(rows[1]), delivery_row(rows[3]))
    assert backlog(root) == Backlog("t", "s", 0, None, {})


def test_what_is_settled_is_pending_for_nobody_while_it_is_deleted_and_after(root: str) -> None:
    """Messages go and their deliveries stay: neither may hide what is pending in the same minute, or seem pending."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    old, due, late = message_row(1, 0, 1_000), message_row(1, 1, 2_000), message_row(2, 0, 1_000)
    put(root, MESSAGES, old, due, late)
    put(root, DELIVERIES, delivery_row(old))
    wanted = Backlog("t", "s", 2, 1_000, {0: 2})
    assert backlog(root) == wanted
    raise_to(Files(), root, SettledMark(1_000, 2, 1))
    assert backlog(root) == wanted
    open_table(root, MESSAGES).delete("entry_id = 0 AND ledger_id = 1")
    assert backlog(root) == wanted


def test_a_backlog_says_how_long_its_messages_have(root: str) -> None:
    """By the subscription, else by its topic: dispatch leaves out what is past it."""
    for name in ("s", "u"):
        subscribe(root, Subscription("t", name))
    assert backlog(root).ttl_ms is None
    set_policy(root, "t", ttl_ms=60_000)
    set_policy(root, "t", "u", ttl_ms=5_000, paused=True)
    assert (backlog(root).ttl_ms, backlog(root).paused) == (60_000, False)
    assert (backlog(root, "u").ttl_ms, backlog(root, "u").paused) == (5_000, True)


def test_a_due_time_is_counted_as_ingest_computes_it(root: str) -> None:
    """Microseconds round up, the past is due at publication, and before 1970 is 1970: both sides must agree."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    micro = message_row(1, 0, 119_999)
    micro = {**micro, "deliver_at": micro["deliver_at"].replace(microsecond=999_001), "due_time": at(120_000)}
    past = message_row(1, 1, 1_000, published=500_000)
    none = {**message_row(1, 2, 0, published=500_000), "deliver_at": None}
    ancient = {**message_row(1, 3, -70 * 365 * 86_400_000, published=-60_001), "due_time": at(0)}
    put(root, MESSAGES, micro, past, none, ancient)
    assert backlog(root).minutes == {0: 1, 2 * MINUTE: 1, 8 * MINUTE: 2}
    put(root, DELIVERIES, *(delivery_row(row) for row in (micro, past, none, ancient)))
    assert backlog(root) == Backlog("t", "s", 0, None, {})


def test_each_subscription_counts_from_its_first_ledger(root: str) -> None:
    """A late subscriber is not owed what came before it; one not noticed yet is owed all or nothing."""
    for name, start in (("a", "earliest"), ("b", "latest"), ("c", "latest"), ("d", "earliest")):
        subscribe(root, Subscription("t", name, start=start))
    noticed(root, "a", 0)
    noticed(root, "b", 2, marker=2)
    put(root, MESSAGES, message_row(1, 0, 1_000), message_row(2, 0, 1_000), message_row(2, 1, 1_000, topic="other"))
    assert {name: backlog(root, name).count for name in "abcd"} == {"a": 2, "b": 1, "c": 0, "d": 2}


def test_a_subscription_that_came_back_is_owed_what_its_present_life_is(root: str) -> None:
    """What an earlier life got is not taken off; between leaving and being noticed again it is like a new one."""
    for name, start in (("a", "earliest"), ("b", "latest"), ("c", "earliest"), ("d", "latest")):
        subscribe(root, Subscription("t", name, start=start))
        noticed(root, name, 0)
        noticed(root, name, LEFT, marker=2)
    noticed(root, "b", 2, marker=2)
    noticed(root, "a", 0, marker=3)
    rows = [message_row(1, 0, 1_000), message_row(2, 0, 1_000)]
    put(root, MESSAGES, *rows)
    put(root, DELIVERIES, *(delivery_row(rows[0], subscription=name) for name in "abcd"))
    assert {name: backlog(root, name).count for name in "abcd"} == {"a": 2, "b": 1, "c": 2, "d": 0}
    put(root, DELIVERIES, {**delivery_row(rows[1], subscription="a"), "life": 2})
    assert backlog(root, "a").count == 1


def test_lines_of_the_registry_that_nobody_would_write_by_command_do_no_harm(root: str) -> None:
    """The registry is a table that anybody may append to: one odd line must not blind the commands."""
    subscribe(root, Subscription("t", "s"))
    odd = {"topic": "t", "subscription": "odd", "type": "?", "start": "?", "tick_ms": 1, "active": True}
    put(root, SUBSCRIPTIONS, odd, {**odd, "subscription": "never", "tick_ms": 0}, {**odd, "subscription": " "})
    assert [(each.name, each.type, each.start) for each in subscriptions(root)] == [
        ("odd", "shared", "latest"),
        ("s", "shared", "latest"),
    ]
    assert [each.subscription for each in pending(root).backlogs] == ["odd", "s"]


def test_redeliveries_and_foreign_deliveries_do_not_count(root: str) -> None:
    """A message delivered a second time was delivered once before."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    row = message_row(1, 0, 1_000)
    put(root, MESSAGES, row, message_row(1, 1, 1_000))
    put(root, DELIVERIES, delivery_row(row), delivery_row(row, count=1), delivery_row(row, subscription="gone"))
    assert backlog(root).count == 1


def test_names_with_quotes_are_counted_as_any_other(root: str) -> None:
    """A name is data, also where it stands in a query."""
    subscribe(root, Subscription("it's", "o'clock"))
    noticed(root, "o'clock", 0, topic="it's")
    put(root, MESSAGES, message_row(1, 0, 1_000, topic="it's"))
    assert [each.count for each in pending(root).backlogs] == [1]
    assert [each.count for each in pending(root, "it's", "o'clock").backlogs] == [1]
    assert pending(root, "t").backlogs == ()


def test_very_many_listeners_are_a_table_in_the_query_and_count_the_same(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spelled out, a million names would take the parser 25 GB, and a running service counts every few seconds."""
    names = ["it's", "a\nb", "x" * 1_000, "💥"]
    for number, name in enumerate(names):
        subscribe(root, Subscription(name, name))
        noticed(root, name, 0, topic=name, marker=number)
    rows = [message_row(1, entry, 61_000 * entry, topic=name) for name in names for entry in range(3)]
    put(root, MESSAGES, *rows)
    put(root, DELIVERIES, delivery_row(rows[0], subscription=names[0]))
    spelled_out = pending(root)
    assert [each.count for each in spelled_out.backlogs] == [2 if each == "it's" else 3 for each in sorted(names)]
    monkeypatch.setattr("pipeline.client.tables.relations._SPELLED_OUT", 1)
    assert pending(root) == spelled_out


@pytest.mark.parametrize("spelled_out", [1_000, 1])
def test_what_was_left_out_is_subtracted_from_its_own_subscription_and_life(
    root: str, monkeypatch: pytest.MonkeyPatch, spelled_out: int
) -> None:
    """Of three, in three ledgers; what comes next, and the keys, are those of what is left."""
    monkeypatch.setattr("pipeline.client.tables.relations._SPELLED_OUT", spelled_out)
    names = ("a", "b", "c")
    for number, name in enumerate(names):
        subscribe(root, Subscription("t", name))
        noticed(root, name, 0, marker=number)
    rows = [message_row(ledger, entry, MINUTE * (ledger + entry)) for ledger in (1, 2, 3) for entry in range(4)]
    put(root, MESSAGES, *({**row, "message_key": f"k{row['ledger_id']}"} for row in rows))
    gone = [(name, 1, entry) for name in "ab" for entry in range(4)] + [("b", 2, 0), ("b", 3, 3)]
    of = [left_out_row(ledger, entry, MINUTE, subscription=name, reason="expired") for name, ledger, entry in gone]
    put(root, REJECTED_DISPATCH, *of, {**of[0], "subscription": "c", "life": 9}, {**of[-1], "redelivery_count": 1})
    found = pending(root).backlogs
    assert [(each.subscription, each.count, each.next_due) for each in found] == [
        ("a", 8, 2 * MINUTE),
        ("b", 6, 3 * MINUTE),
        ("c", 12, MINUTE),
    ]
    keys = [(each.subscription, each.key, each.count) for each in pending_by_key(root)]
    assert keys == [
        *(("a", "k2", 4), ("a", "k3", 4), ("c", "k1", 4), ("c", "k2", 4), ("c", "k3", 4)),
        *(("b", "k2", 3), ("b", "k3", 3)),
    ]


def test_the_inbox_counts_what_ingest_has_not_taken(root: str) -> None:
    """It is what lies behind the place that ingest noted last, whatever else was deleted from which table."""
    for count in (5, 3, 2):
        send(root, [OutgoingMessage("t", b"")] * count)
    assert pending(root).in_inbox == 10
    taken(root, MESSAGES, 2, -1)
    taken(root, REJECTED_INGEST, 1, 0)
    put(root, MESSAGES, message_row(1, 1, 1_000))
    found = pending(root)
    assert found.in_inbox == 5
    assert found.versions == {"deliveries": 0, "messages": 2}
    taken(root, REJECTED_INGEST, 2, 0)
    assert pending(root).in_inbox == 2
    open_table(root, INBOX).optimize.compact()
    assert pending(root).in_inbox == 2


@pytest.mark.parametrize("stats", [None, "", '{"minValues":{}}'])
def test_the_inbox_counts_files_whose_writer_left_out_the_statistics(root: str, stats: str | None) -> None:
    """Statistics are optional in Delta, and a producer may write none: the file itself says how many rows it has."""
    send(root, [OutgoingMessage("t", b"")] * 3)
    send(root, [OutgoingMessage("t", b"")] * 2)
    entry = Path(path_of(root, INBOX), "_delta_log", f"{2:020d}.json")
    lines = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if "add" in line:
            del line["add"]["stats"]
            line["add"] |= {} if stats is None else {"stats": stats}
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert pending(root).in_inbox == 5

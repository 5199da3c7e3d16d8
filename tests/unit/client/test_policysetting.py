"""Policies are set and unset one by one, for topics and subscriptions, and what they were is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")


from pipeline.client.client import Client
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.subscribing.policysetting import (
    policy_history,
    set_policy,
    topic_policies,
    unset_policy,
)
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.client.tables.partitions import topic_partitions
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import GuardState, GuardStates
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import HELD, MESSAGES, SUBSCRIPTIONS
from tests.support.client import message_row, new_warehouse, noticed, put
from tests.support.invoked import output, run

HOUR = 3_600_000


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def written(root: str, topic: str, policies: dict[str, str]) -> None:
    """Write the line of a topic as any Delta writer may; nobody checks what it says."""
    line = {"topic": topic, "subscription": "", "type": "topic", "start": "latest", "tick_ms": 1, "active": False}
    append(root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [{**line, "policies": policies}]))


def test_policies_of_a_topic_are_set_unset_and_shown_and_their_history_is_kept(root: str) -> None:
    """Beside the number of its partitions, which stands under the same name, and beside its subscriptions."""
    subscribe(root, Subscription("t", "s"))
    create_partitioned_topic(root, "t", 2)
    words = ("policy", "set", "--topic", "t", "--min-delay", "5s")
    assert "has other policies" in output(root, *words)
    assert "had these already" in output(root, *words)
    output(root, "policy", "set", "--topic", "t", "--max-delay", "1h")
    assert topic_policies(root, "t") == TopicPolicies(min_delay_ms=5_000, max_delay_ms=HOUR)
    shown = output(root, "policy", "show", "--topic", "t")
    assert "shortest delay: 5s" in shown
    assert "next batch of ingest" in shown
    assert json.loads(output(root, "policy", "show", "--topic", "t", "--json"))["max_delay_ms"] == HOUR
    output(root, "policy", "set", "--topic", "t", "--precision", "proportional")
    assert "precision: proportional" in output(root, "policy", "show", "--topic", "t")
    output(root, "policy", "set", "--topic", "t", "--precision", "exact")
    output(root, "policy", "unset", "--topic", "t", "min_delay_ms")
    output(root, "policy", "unset", "--topic", "t", "max_delay_ms")
    assert "no policies" in output(root, "policy", "show", "--topic", "t")
    held = [dict(each.policies) for each in policy_history(root, "t")]
    one, two = {"min_delay_ms": "5000"}, {"min_delay_ms": "5000", "max_delay_ms": str(HOUR)}
    coarse = {**two, "precision": "proportional"}
    assert held == [one, two, coarse, two, {"max_delay_ms": str(HOUR)}, {}]
    lines = output(root, "policy", "show", "--topic", "t", "--history").splitlines()
    assert [line.split("  ")[1] for line in lines][-1] == "(defaults)"
    assert topic_partitions(root, "t") == ["t-partition-0", "t-partition-1"]
    assert {each.name for each in subscriptions(root)} == {"s"}


def test_policies_of_a_subscription_are_set_one_by_one_whoever_sets_them(root: str) -> None:
    """The client and the command change the same line, and each change is remembered."""
    subscribe(root, Subscription("t", "s", policies=Policies(ack=True, max_redeliveries=3)))
    with Client(root) as client:
        assert client.set_policies("t", "s", max_unacked=9)
        assert not client.set_policies("t", "s", max_unacked=9)
        assert client.unset_policies("t", "max_redeliveries", subscription_name="s")
        found = client.get_policies("t", "s")
        assert isinstance(found, Policies)
        assert (found.max_unacked, found.max_redeliveries) == (9, None)
        assert client.get_policies("t") == TopicPolicies()
    output(root, "policy", "set", "--topic", "t", "--subscription", "s", "--max-redeliveries", "4")
    most = [each.policies.get("max_redeliveries") for each in policy_history(root, "t", "s")]
    assert most == ["3", "3", None, "4"]


def test_a_subscription_is_paused_and_goes_on_and_what_is_held_is_told(root: str) -> None:
    """By the command, by the client, and by what lists backlogs; what is held of an earlier life does not count."""
    subscribe(root, Subscription("t", "s"))
    noticed(root, "s", 0)
    put(root, MESSAGES, *(message_row(1, entry, 1_000) for entry in range(5)))
    run_of = {"topic": "t", "subscription": "s", "ledger_id": 1, "due_time": 0, "message_due": 0, "tick_ms": 1}
    rest = {"released_at": 0, "redelivery_count": 0, "cause": "due", "batch_id": 0}
    rows = [{**run_of, **rest, "life": life, "first_entry": 1, "last_entry": 3} for life in (1, 2)]
    append(root, HELD, rows_of(HELD, rows))
    named = ("--topic", "t", "--subscription", "s")
    assert output(root, "pause", *named) == "t/s is paused\n"
    assert output(root, "pause", *named) == "t/s is paused already\n"
    assert "3 of them held, paused" in output(root, "pending")
    assert output(root, "subscriptions").splitlines()[1].endswith("3, paused")
    assert output(root, "policy", "show", *named).startswith("paused")
    (found,) = json.loads(output(root, "pending", "--json"))["subscriptions"]
    assert (found["pending"], found["held"], found["paused"]) == (5, 3, True)
    with Client(root) as client:
        assert client.resume("t", "s")
        assert not client.resume("t", "s")
        assert client.pause("t", "s")
    output(root, "policy", "set", *named, "--priority", "urgency")
    assert "number in the property urgency comes first" in output(root, "policy", "show", *named)
    output(root, "policy", "unset", *named, "priority")
    output(root, "policy", "set", *named, "--max-rate", "2")
    assert output(root, "resume", *named) == "t/s goes on\n"
    assert "3 of them held, the last one in 1s at 2 a second" in output(root, "pending")
    assert output(root, "subscriptions").splitlines()[1].endswith("3, 1s")
    assert "rate: 2 messages a second" in output(root, "policy", "show", *named)
    output(root, "policy", "unset", *named, "max_rate")
    assert output(root, "resume", *named) == "t/s was not paused\n"
    assert [dict(each.policies) for each in policy_history(root, "t", "s")][-2:] == [{"max_rate": "2"}, {}]


def test_a_time_to_live_is_one_of_a_topic_or_of_a_subscription(root: str) -> None:
    """Both are durations, shown to people and scripts."""
    subscribe(root, Subscription("t", "s"))
    of_topic, of_subscription = ("--topic", "t"), ("--topic", "t", "--subscription", "s")
    output(root, "policy", "set", *of_topic, "--ttl", "1d")
    output(root, "policy", "set", *of_subscription, "--ttl", "1h")
    assert "time to live: what was not handed over within 1d" in output(root, "policy", "show", *of_topic)
    assert "ingest" not in output(root, "policy", "show", *of_topic)
    assert "within 1h after it was due" in output(root, "policy", "show", *of_subscription)
    with Client(root) as client:
        assert client.get_policies("t", "s") == Policies(ttl_ms=HOUR)
        assert client.unset_policies("t", "ttl_ms", subscription_name="s")
        with pytest.raises(BadValue, match=r"ttl_ms = 999, allowed: a whole number in 1000\.\."):
            client.set_policies("t", "s", ttl_ms=999)
    assert topic_policies(root, "t") == TopicPolicies(ttl_ms=24 * HOUR)


def test_a_guard_is_evaluated_when_it_is_set_and_shown_with_its_tables(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command a path may begin where that runs; what fails later is told where subscriptions are listed."""
    subscribe(root, Subscription("t", "s"))
    named = ("--topic", "t", "--subscription", "s")
    write_deltalake(str(tmp_path / "elsewhere" / "paid"), pa.table({"order_id": ["o-1"]}))
    monkeypatch.chdir(tmp_path / "elsewhere")
    words = ("--guard", "message_key NOT IN (SELECT order_id FROM paid)")
    assert run(root, "policy", "set", *named, *words).exit_code == 2
    assert run(root, "policy", "set", *named, *words, "--guard-table", "paid").exit_code == 2
    output(root, "policy", "set", *named, *words, "--guard-table", "paid=paid")
    shown = output(root, "policy", "show", *named)
    assert f"guard: {words[1]}; what does not meet it" in shown
    assert f"  paid is the table {tmp_path / 'elsewhere' / 'paid'}" in shown
    with Client(root) as client:
        with pytest.raises(BadValue, match="guard"):
            client.set_policies("t", "s", guard="no_such_column")
        with pytest.raises(BadValue, match="guard_tables"):
            client.set_policies("t", "s", guard=None)
        assert client.set_policies("t", "s", guard="message_key > ''", guard_tables={})
    states = GuardStates(Files(), root)
    for guard in (words[1], "message_key > ''"):
        states.put(GuardState("t", "s", guard, "it is\ngone", 5))
        assert ("The guard of t/s fails" in output(root, "subscriptions")) is (guard != words[1])
    states.drop(("t", "s"))
    assert "fails" not in output(root, "subscriptions")
    output(root, "policy", "unset", *named, "guard")
    assert json.loads(output(root, "policy", "show", *named, "--json"))["guard"] is None


def test_what_belongs_to_a_policy_alone_is_unset_with_it(root: str) -> None:
    """A window goes with its zone and its spread, a guard with its tables; what stands by itself stays."""
    set_policy(root, "t", window="08:00-20:00", window_zone="Europe/Rome", window_spread_ms=60_000, ttl_ms=5_000)
    output(root, "policy", "unset", "--topic", "t", "window")
    assert topic_policies(root, "t") == TopicPolicies(ttl_ms=5_000)
    subscribe(root, Subscription("t", "s"))
    write_deltalake(f"{root}/paid", pa.table({"order_id": ["o-1"]}))
    guard = {"guard": "message_key NOT IN (SELECT order_id FROM paid)", "guard_tables": {"paid": f"{root}/paid"}}
    set_policy(root, "t", "s", ack=True, retry_min_ms=5_000, retry_max_ms=700_000, **guard)
    assert unset_policy(root, "t", "guard", "retry_min_ms", subscription="s")
    left = Policies(ack=True, retry_max_ms=700_000)
    assert replace(subscriptions(root)[0].policies, ack_after=None) == left
    assert unset_policy(root, "t", "ack", subscription="s")
    assert replace(subscriptions(root)[0].policies, ack_after=None) == replace(left, ack=False)


def test_a_policy_that_dispatch_cannot_follow_leaves_the_others_as_they_are() -> None:
    """Any writer may set texts."""
    assert Policies.followed({"paused": "true", "max_rate": "many", "ttl_ms": "5", "ack": "perhaps"}) == Policies(
        paused=True
    )
    assert Policies.followed({"ttl_ms": "5000", "paused": None}) == Policies(ttl_ms=5_000)


def test_what_cannot_be_followed_is_refused_with_its_name_value_and_range(root: str) -> None:
    """Nothing is kept then, and no policy is taken by a topic that is one of a subscription."""
    subscribe(root, Subscription("t", "s"))
    for words in (
        ("--fixed-delay", "5s", "--min-delay", "1s"),
        ("--min-delay", "2s", "--max-delay", "1s"),
        ("--fixed-delay", "4000d"),
        ("--precision", "coarse"),
        ("--priority", "urgency"),
        ("--subscription", "s", "--priority", ""),
        ("--subscription", "s", "--precision", "exact"),
        ("--ack",),
        (),
        ("--subscription", "s", "--min-delay", "1s"),
    ):
        assert run(root, "policy", "set", "--topic", "t", *words).exit_code == 2, words
    with pytest.raises(BadValue, match=r"max_delay_ms = 1, allowed: a whole number in 5\.\."):
        set_policy(root, "t", min_delay_ms=5, max_delay_ms=1)
    with pytest.raises(BadValue, match="precision = 'fine', allowed: exact, proportional"):
        set_policy(root, "t", precision="fine")
    names = "fixed_delay_ms, min_delay_ms, max_delay_ms, precision, window, window_zone, window_spread_ms"
    names += ", window_calendar, ttl_ms"
    with pytest.raises(BadValue, match=f"policy = 'slots', allowed: {names}"):
        unset_policy(root, "t", "slots")
    with pytest.raises(SubscriptionNotFound):
        set_policy(root, "t", "other", slots=5)
    assert open_table(root, SUBSCRIPTIONS).version() == 1
    assert policy_history(root, "t") == []


@pytest.mark.parametrize(("change", "left"), [("unset", {}), ("set", {"max_delay_ms": "7000"})])
def test_policies_of_a_topic_that_cannot_be_followed_are_mended_by_one_that_is_set_or_unset(
    root: str, change: str, left: dict[str, str]
) -> None:
    """Those that can be followed hold, before and then; a window is none without its zone."""
    window = {"window": "Mo-Fr 08:00-20:00", "window_zone": "Mars/Olympus", "window_spread_ms": "1000"}
    written(root, "t", {"min_delay_ms": "5000", "max_delay_ms": "soon", "ttl_ms": "9000", **window})
    assert topic_policies(root, "t") == TopicPolicies(min_delay_ms=5_000, ttl_ms=9_000)
    assert topic_policies(root, "t-partition-0").opening is None
    words = ("policy", "set", "--topic", "t", "--max-delay", "7s")
    output(root, *(words if change == "set" else ("policy", "unset", "--topic", "t", "max_delay_ms")))
    kept = TopicPolicies(min_delay_ms=5_000, ttl_ms=9_000)
    assert topic_policies(root, "t").as_map() == {**kept.as_map(), **left}
    assert [dict(each.policies) for each in policy_history(root, "t")] == [topic_policies(root, "t").as_map()]


def test_a_topic_whose_only_policy_cannot_be_followed_has_no_line_when_that_is_unset(root: str) -> None:
    """Of several lines the last one counts; one that can be followed has nothing to mend."""
    written(root, "t", {"ttl_ms": "soon"})
    assert "has other policies" in output(root, "policy", "unset", "--topic", "t", "ttl_ms")
    assert query("SELECT * FROM s WHERE type = 'topic'", s=open_table(root, SUBSCRIPTIONS)) == []
    assert not unset_policy(root, "t", "ttl_ms")
    mended = Topics.of_rows([("t", {"min_delay_ms": "soon"}), ("t", {"ttl_ms": "5000"})])
    assert (mended.unclear, mended.wrong, mended.of("t").ttl_ms) == ({}, {}, 5_000)


def test_the_command_keeps_a_sink_when_it_mends_what_contradicts_it(root: str) -> None:
    """It changes what it names only."""
    row = {"topic": "t", "subscription": "s", "type": "shared", "start": "latest", "tick_ms": 1_000, "active": True}
    texts = {"sink": "kafka://there:1/out", "ack": "true"}
    append(root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [{**row, "policies": texts}]))
    named = ("--topic", "t", "--subscription", "s")
    output(root, "policy", "set", *named, "--no-ack")
    assert subscriptions(root)[0].policies.sink == "kafka://there:1/out"
    output(root, "policy", "set", *named, "--no-sink")
    assert subscriptions(root)[0].policies == Policies()


def test_two_who_set_policies_of_a_topic_at_once_keep_both(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who loses the race decides anew, by the registry as it is then."""
    others = iter([5_000])

    def write(*words: Any, **named: Any) -> None:  # noqa: ANN401 - passed on
        for other in others:
            set_policy(root, "t", min_delay_ms=other)
        write_deltalake(*words, **named)

    monkeypatch.setattr("pipeline.client.subscribing.lines.write_deltalake", write)
    set_policy(root, "t", max_delay_ms=HOUR)
    assert topic_policies(root, "t") == TopicPolicies(min_delay_ms=5_000, max_delay_ms=HOUR)
    assert [dict(each.policies) for each in policy_history(root, "t")][-1] == topic_policies(root, "t").as_map()


def test_a_partition_has_the_policies_of_its_topic_unless_it_has_some(root: str) -> None:
    """What any Delta writer wrote wrong counts for nothing, and is told."""
    set_policy(root, "t", fixed_delay_ms=5_000)
    set_policy(root, "t-partition-1", min_delay_ms=7)
    assert topic_policies(root, "t-partition-12").fixed_delay_ms == 5_000
    assert topic_policies(root, "t-partition-1") == TopicPolicies(min_delay_ms=7)
    assert topic_policies(root, "t-partition-x") == topic_policies(root, "other") == TopicPolicies()
    written(root, "u", {"min_delay_ms": "soon"})
    assert topic_policies(root, "u") == TopicPolicies()
    assert set(Topics.of_rows([("u", {"min_delay_ms": "soon"})]).wrong) == {"u"}

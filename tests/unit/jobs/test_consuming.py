"""The commands around acknowledgement: what they print, what they refuse, and with which exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")


from jobs.commands import consume, policies
from jobs.commands.durations import BadText
from pipeline.client.insight.standing import standings
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES, MESSAGES
from state import LeaseKind, LeaseReplay, LeaseRow, Nack
from state.units import Ms
from tests.support.acknowledged import settled
from tests.support.client import delivery_row, message_row, new_warehouse, put
from tests.support.invoked import output, run
from tests.support.settled import NOW, at, released

NAMED = ("--topic", "t", "--subscription", "s")
MINUTE = 60_000
NOTHING = "comes: 0 messages of the log, each at its time"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def policies_of(root: str) -> Policies:
    """Those of the one subscription, but for the version since which it acknowledges."""
    (line,) = subscriptions(root)
    return Policies.of_map({k: v for k, v in line.policies.as_map().items() if k != "ack_after"})


@pytest.fixture
def acknowledging(root: str) -> str:
    """A subscription with three messages outstanding and one waiting, of which two consumers have slots."""
    output(root, "subscribe", *NAMED, "--ack", "--slots", "8")
    output(root, "subscribe", "--topic", "t", "--subscription", "plain")
    put(root, MESSAGES, message_row(7, 2, 1_000))
    state = released((7, 2, 5))
    state.handle(Nack(at((7, 4, 4)), 0), now=Ms(NOW))
    leases = LeaseReplay(8)
    for session, name in ((1, "alice"), (2, "bob")):
        leases.apply([LeaseRow(LeaseKind.RENEW, name, session, 0, lease_ms=10_000)])
    for slot in (0, 1, 2, 5):
        leases.apply([LeaseRow(LeaseKind.CLAIM, "alice", 1, 0, slot)])
    leases.apply([LeaseRow(LeaseKind.CLAIM, "bob", 2, 0, 6)])
    settled(root, state, leases=leases, read={"now": NOW})
    return root


def test_a_subscription_with_acknowledgement_has_the_policies_that_were_named(root: str) -> None:
    """Each by its option."""
    words = ("--ack", "--ack-timeout", "30s", "--backoff", "1s:2:1m", "--max-redeliveries", "5", "--max-unacked", "100")
    output(root, "subscribe", *NAMED, *words, "--dead-letter-topic", "dead", "--slots", "8", "--type", "key_shared")
    wanted = Policies(ack=True, ack_timeout_ms=30_000, retry_min_ms=1_000, retry_multiplier=2, retry_max_ms=MINUTE)
    wanted = replace(wanted, max_redeliveries=5, dead_letter_topic="dead", slots=8, max_unacked=100)
    assert policies_of(root) == wanted
    assert "registered already" in output(root, "subscribe", *NAMED), "nobody said otherwise"
    other = run(root, "subscribe", *NAMED, "--ack", "--max-unacked", "7")
    assert "max_unacked 100, not 7; change it with: delayline policy set --warehouse" in other.stderr


def test_policies_without_acknowledgement_are_refused(root: str) -> None:
    """Nobody would follow them."""
    for words in (("--slots", "8"), ("--backoff", "1s:2:1m"), ("--max-redeliveries", "0")):
        result = run(root, "subscribe", *NAMED, *words)
        assert (result.exit_code, "--ack" in result.output) == (2, True)
    assert subscriptions(root) == []


@pytest.mark.parametrize("words", [("--slots", "0"), ("--ack-timeout", "5ms"), ("--backoff", "1m:2:1s")])
def test_a_policy_that_cannot_be_followed_is_refused(root: str, words: tuple[str, str]) -> None:
    """Before anything is written."""
    assert run(root, "subscribe", *NAMED, "--ack", *words).exit_code == 2
    assert subscriptions(root) == []


def test_a_backoff_has_three_parts() -> None:
    """The first delay, how many times as long each next one is, and the longest."""
    values = {"retry_min_ms": 10_000, "retry_multiplier": 2, "retry_max_ms": 10 * MINUTE}
    assert policies.backoff("10s:2:10m") == values
    for text in ("10s", "10s:2", "10s:two:10m", "10:2:10m", "10s:2:10m:1"):
        with pytest.raises(BadText):
            policies.backoff(text)


def test_policies_are_changed_one_by_one_and_shown(root: str) -> None:
    """What is not named stays as it is."""
    output(root, "subscribe", *NAMED)
    assert output(root, "policy", "show", *NAMED).startswith("does not acknowledge")
    output(root, "policy", "set", *NAMED, "--ack", "--max-redeliveries", "3")
    output(root, "policy", "set", *NAMED, "--backoff", "1s:3:1m")
    wanted = Policies(ack=True, retry_min_ms=1_000, retry_multiplier=3, retry_max_ms=MINUTE, max_redeliveries=3)
    assert policies_of(root) == wanted
    assert "had these already" in output(root, "policy", "set", *NAMED, "--backoff", "1s:3:1m")
    shown = output(root, "policy", "show", *NAMED)
    assert "backoff: 1s, each next one 3 times as long, up to 1m" in shown
    assert "redeliveries: 3 at most\ndead letters: t-s-DLQ" in shown
    output(root, "policy", "set", *NAMED, "--no-ack")
    assert not policies_of(root).ack


@pytest.mark.parametrize("set_by", ["--ttl", "--ttl-ms", "--ttl_ms"])
@pytest.mark.parametrize("unset_by", ["ttl", "ttl_ms", "ttl-ms", "--ttl", "--ttl-ms"])
def test_a_policy_is_set_and_unset_by_the_name_of_its_option_or_its_own(root: str, set_by: str, unset_by: str) -> None:
    """`policy set --ttl` was undone by `policy unset ttl_ms` only."""
    output(root, "subscribe", *NAMED)
    output(root, "policy", "set", *NAMED, set_by, "1h")
    assert policies_of(root).ttl_ms == 3_600_000
    output(root, "policy", "unset", *NAMED, unset_by)
    assert policies_of(root) == Policies()


def test_each_policy_is_unset_by_its_option_and_a_backoff_as_a_whole() -> None:
    """What is no name of a policy is refused by whoever unsets it."""
    rows = Policies.rows.values()
    for row in rows:
        flag = row.flag.partition("/")[0]
        wanted = [name for name in Policies.rows if name.startswith("retry_")] if flag == "--backoff" else [row.name]
        assert policies.named([flag], rows) == wanted if row.option else policies.named([row.name], rows) == [row.name]
    assert policies.named(["tll", "--tick"], rows) == ["tll", "--tick"]


def test_a_subscription_that_is_not_there_is_named(root: str) -> None:
    """By each command that needs it."""
    for words in (("policy", "show"), ("policy", "set", "--ack"), ("unsubscribe",), ("consume", "--no-follow")):
        result = run(root, *words, *NAMED)
        assert (result.exit_code, "no subscription 's'" in result.output) == (1, True), words


def test_an_ended_subscription_is_gone(root: str) -> None:
    """It may be registered again."""
    output(root, "subscribe", *NAMED)
    assert output(root, "unsubscribe", *NAMED) == "t/s is ended\n"
    assert subscriptions(root) == []
    output(root, "subscribe", *NAMED, "--ack")


def test_subscriptions_are_listed_with_what_is_open(acknowledging: str) -> None:
    """In columns for people; what does not acknowledge has nothing open."""
    head, plain, line = output(acknowledging, "subscriptions").splitlines()
    heads = "SUBSCRIPTION TYPE ACK PENDING OUTSTANDING WAITING OLDEST CONSUMERS HELD"
    assert head.split() == heads.split()
    assert plain.split() == ["t/plain", "shared", "no", "0", "-", "-", "-", "-", "-"]
    assert line.split()[:6] == ["t/s", "shared", "yes", "0", "3", "1"]
    assert "7:2, " in line
    (found,) = json.loads(output(acknowledging, "subscriptions", "--subscription", "s", "--json"))
    assert (found["outstanding"], found["waiting"]) == (3, 1)
    assert (found["oldest"], found["oldest_due"]) == ("7:2", "1970-01-01T00:00:01.000Z")
    assert found["consumer_count"] == 2


def test_consumers_are_listed_with_their_slots(acknowledging: str) -> None:
    """And what nobody has, since its messages wait."""
    when, _, alice, bob, nobody = output(acknowledging, "consumers").splitlines()
    assert "2023-11-14T22:13:20.000Z" in when
    assert alice.split() == ["t/s", "alice", "0-2,", "5", "10s"]
    assert bob.split() == ["t/s", "bob", "6", "10s"]
    assert nobody.split() == ["t/s", "(nobody)", "3-4,", "7"]
    found = json.loads(output(acknowledging, "consumers", "--json"))
    assert found["settled_at"] == "2023-11-14T22:13:20.000Z"
    assert [each["slot_numbers"] for each in found["subscriptions"][0]["consumers"]] == [[0, 1, 2, 5], [6]]


def test_an_empty_warehouse_has_nobody(root: str) -> None:
    """No table of nothing."""
    assert output(root, "subscriptions") == "No active subscription.\n"
    assert output(root, "consumers") == "No consumer.\n"
    assert standings(root) == []


def test_a_subscription_that_does_not_acknowledge_is_not_consumed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deliveries are printed by another command; or it acknowledges from now on."""
    monkeypatch.setattr(consume, "_JOIN_S", 0.0)
    output(root, "subscribe", *NAMED)
    result = run(root, "consume", *NAMED, "--no-follow")
    assert (result.exit_code, "does not acknowledge" in result.output) == (1, True)
    put(root, DELIVERIES, delivery_row(message_row(7, 2, 1_000)))
    assert "7.2" in output(root, "receive", *NAMED, "--no-follow")
    output(root, "policy", "set", *NAMED, "--ack")
    assert output(root, "consume", *NAMED, "--no-follow") == "0 acknowledged, 0 failed\n"


class Queue:
    """A consumer with messages."""

    def __init__(self, *messages: object) -> None:
        """These."""
        self.messages, self.said, self.looks = list(messages), list[tuple[str, object]](), 0

    def next_message(self, _: int) -> Any:  # noqa: ANN401 - any message
        """The next one."""
        return self.messages.pop(0) if self.messages else None

    def is_connected(self) -> bool:
        """Whether it has a share: not at its first look."""
        self.looks += 1
        return self.looks > 1

    def acknowledge(self, message: object) -> None:
        """Note it."""
        self.said.append(("ack", message))

    def negative_acknowledge(self, message: object) -> None:
        """Note it."""
        self.said.append(("nack", message))


def test_what_is_received_is_answered_by_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is printed with its answer, and now and then how far it is, until nothing comes or the number."""
    drawn = iter((0.1, 0.9, 0.2, 0.8, 0.1))
    monkeypatch.setattr("random.random", lambda: next(drawn))
    monkeypatch.setattr(consume, "_NOTED", 2)
    queue, lines = Queue("a", "b", "c", "d", "e"), list[str]()
    wanted = consume.Choices(None, follow=False, wait_ms=0, limit=3, nack_rate=0.5)
    form: Any = lambda message, answer: f"{message} {answer}"  # noqa: E731 - a message is a text here
    says = consume.Says(lines.append, form, lines.append)
    assert consume._work(queue, wanted, says) == (1, 2)  # type: ignore[arg-type]
    assert lines == ["a nack", "b ack", "1 acknowledged, 1 failed so far", "c nack"]
    assert queue.said == [("nack", "a"), ("ack", "b"), ("nack", "c")]
    rest = consume.Choices(None, follow=False, wait_ms=0, limit=None, nack_rate=0.5)
    assert consume._work(queue, rest, says) == (1, 1)  # type: ignore[arg-type]


def test_a_consumer_that_has_no_share_yet_is_waited_for() -> None:
    """Nothing comes at first, and that is not the end."""
    queue, lines = Queue(None, None, "a"), list[str]()
    wanted = consume.Choices(None, follow=False, wait_ms=0, limit=None, nack_rate=0)
    form: Any = lambda message, answer: f"{message} {answer}"  # noqa: E731 - a message is a text here
    says = consume.Says(lines.append, form, lines.append)
    assert consume._work(queue, wanted, says) == (0, 0)  # type: ignore[arg-type]
    assert queue.messages == ["a"], "it has a share by then, and nothing came"


def test_dead_letters_are_listed_and_put_back(root: str) -> None:
    """By the usual topic, or by the one that the policies name."""
    output(root, "subscribe", *NAMED, "--ack", "--max-redeliveries", "1", "--dead-letter-topic", "dead")
    put(root, MESSAGES, _letter("dead"), _letter("t-x-DLQ", "x") | {"payload": None})
    assert output(root, "dead-letters", "list", *NAMED) == "3:0  t/s 1:0 [k]  text  (nack after 3 redeliveries)\n"
    usual = ("--topic", "t", "--subscription", "x")
    output(root, "subscribe", *usual)
    assert output(root, "dead-letters", "list", *usual) == "3:0  t/x 1:0 [k]    (nack after 3 redeliveries)\n"
    found = json.loads(output(root, "dead-letters", "list", *usual, "--json"))
    assert (found["dead_letter_topic"], found["payload"]) == ("t-x-DLQ", None)
    assert output(root, "dead-letters", "put-back", *NAMED) == "1 put back\n"
    assert output(root, "dead-letters", "put-back", *NAMED) == "nothing to put back\n"
    assert output(root, "dead-letters", "list", *NAMED) == ""
    assert output(root, "dead-letters", "list", *NAMED, "--all").startswith("3:0")


def _letter(topic: str, subscription: str = "s") -> dict[str, Any]:
    says = {"topic": "t", "subscription": subscription, "position": "1:0", "redelivery_count": "3", "cause": "nack"}
    properties = {f"delayline.{name}": text for name, text in says.items()}
    return message_row(3, 0, 0, topic) | {"message_key": "k", "properties": properties, "payload": b"text"}


def test_seek_and_clear_say_what_they_drop_and_bring(root: str) -> None:
    """With --dry-run they do nothing else; without it the subscription begins anew there."""
    output(root, "subscribe", *NAMED, "--ack")
    put(root, MESSAGES, *(message_row(1, entry, NOW, published=1_000 * entry) for entry in range(3)))
    before = subscriptions(root)
    said = output(root, "clear", *NAMED, "--dry-run").splitlines()
    assert said == ["t/s would begin anew at 1:3", "dropped: 0 pending, 0 outstanding, 0 waiting", NOTHING]
    assert subscriptions(root) == before
    times = {("--time", "1970-01-01T00:00:01"): 2, ("--time", "000000002000"): 1}
    wanted = {("--position", "1:2"): 1, ("--earliest",): 3} | times
    for words, count in wanted.items():
        assert f"comes: {count:,} messages" in output(root, "seek", *NAMED, *words)
        assert str(subscriptions(root)[0].sought) != str(before[0].sought)
    assert "begins anew at 1:3" in output(root, "clear", *NAMED)


@pytest.mark.parametrize("words", [(), ("--earliest", "--time", "0"), ("--position", "1"), ("--time", "noon")])
def test_a_seek_needs_one_place(root: str, words: tuple[str, ...]) -> None:
    """None, two, and what is none are refused."""
    output(root, "subscribe", *NAMED)
    assert run(root, "seek", *NAMED, *words).exit_code == 2


def test_a_topic_is_divided_and_its_partitions_are_listed(root: str) -> None:
    """One that is not divided is its own partition; it cannot have fewer later. One that nobody knows has none."""
    assert run(root, "topic", "--topic", "t").exit_code != 0
    output(root, "subscribe", "--topic", "u", "--subscription", "s")
    assert output(root, "topic", "--topic", "u").splitlines() == ["u"]
    parts = [f"t-partition-{number}" for number in range(3)]
    assert output(root, "topic", "--topic", "t", "--partitions", "3").splitlines() == parts
    assert output(root, "topic", "--topic", "t").splitlines() == parts
    assert run(root, "topic", "--topic", "t", "--partitions", "2").exit_code != 0

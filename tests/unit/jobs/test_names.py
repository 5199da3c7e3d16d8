"""Names that somebody mistyped: told with the nearest one that is known, before anybody waits for nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.version import VERSION
from tests.support.client import new_warehouse
from tests.support.invoked import commands, invoke, output, run
from tests.support.modules import ROOT

MAKING = {"send", "subscribe", "import pulsar", "schedule set"}
"""Commands whose topic need not be there: they say so when it is new."""
MORE: dict[str, list[str]] = {
    "dead-letters put-back": [],
    "forecast": [],
    "policy set": ["--ttl", "1h"],
    "policy unset": ["ttl"],
    "receive": ["--no-follow"],
    "reschedule": ["--to", "tomorrow"],
    "seek": ["--earliest"],
    "shift": ["--by", "1h"],
    "trace": ["--key", "a"],
    **{name: ["--key", "a"] for name in ("cancel", "release")},
}
"""What a command needs beside the names."""


NEEDING = {name for name, each in commands() if any(param.required and "-s" in param.opts for param in each.params)}
"""Commands that have to be told a subscription."""


def naming(option: str) -> list[str]:
    """The commands that take a topic, or a subscription."""
    found = {name for name, each in commands() if option in {word for param in each.params for word in param.opts}}
    return sorted(found - MAKING)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A warehouse with a subscription, and one that has ended."""
    new_warehouse(str(tmp_path))
    for name in ("checkout", "billing"):
        subscribe(str(tmp_path), Subscription("orders", name))
    unsubscribe(str(tmp_path), "orders", "billing")
    return str(tmp_path)


@pytest.mark.parametrize("command", naming("--subscription"))
def test_a_subscription_that_nobody_knows_is_told_with_the_nearest_one(root: str, command: str) -> None:
    """`receive` waited for ever, and `pending` said that there was none."""
    words = [*command.split(), *MORE.get(command, [])]
    result = run(root, *words, "--topic", "orders", "--subscription", "chekout")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no subscription 'chekout'; did you mean 'checkout'?" in result.stderr


@pytest.mark.parametrize("words", [["receive", "--no-follow"], ["pending"], ["pause"], ["policy", "show"]])
def test_a_topic_may_be_spelled_with_its_namespace(root: str, words: list[str]) -> None:
    """As programs of the reference spell it; it is one topic."""
    for topic in ("orders", "persistent://public/default/orders"):
        result = run(root, *words, "--topic", topic, "--subscription", "checkout")
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("command", naming("--topic"))
def test_a_topic_that_nobody_knows_is_told_with_the_nearest_one(root: str, command: str) -> None:
    """So is the topic of a subscription, where a command has to name one."""
    words = [*command.split(), *MORE.get(command, []), "--topic", "order"]
    has_to = command in NEEDING
    result = run(root, *words, *(["--subscription", "checkout"] if has_to else []))
    if command == "policy set":
        # A topic may have policies before it has anything else.
        assert result.stderr == "delayline: topic 'order' has no subscription yet; did you mean 'orders'?\n"
        return
    assert (result.exit_code, result.stdout) == (1, "")
    what = "topic 'order' has no subscription 'checkout'" if has_to else "there is no topic 'order'"
    assert result.stderr == f"delayline: {what}; did you mean 'orders'?\n"


@pytest.mark.parametrize("words", [["subscribe", "--subscription", "s"], ["topic", "--partitions", "2"]])
def test_a_topic_that_is_made_beside_one_of_nearly_its_name_is_told(root: str, words: list[str]) -> None:
    """It may be mistyped; it is made all the same, and is known from then on."""
    made = run(root, *words, "--topic", "ordres")
    assert (made.exit_code, made.stderr) == (0, "delayline: topic 'ordres' is new; did you mean 'orders'?\n")
    assert run(root, *words, "--topic", "ordres").stderr == ""
    assert run(root, *words, "--topic", "reminders").stderr == ""


def test_whoever_names_no_subscription_reads_of_none(root: str) -> None:
    """Or that no topic has one."""
    listed = run(root, "pending", "--subscription", "chekout").stderr
    assert listed == "delayline: no topic has a subscription 'chekout'; did you mean 'checkout'?\n"


def test_a_topic_that_has_partitions_or_policies_only_is_known_and_who_gives_it_some_is_warned(root: str) -> None:
    """It may be mistyped."""
    assert run(root, "topic", "--topic", "parts", "--partitions", "2").exit_code == 0
    assert output(root, "topic", "--topic", "parts").splitlines() == ["parts-partition-0", "parts-partition-1"]
    limited = run(root, "policy", "set", "--topic", "order", "--max-delay", "1d")
    assert limited.stderr == "delayline: topic 'order' has no subscription yet; did you mean 'orders'?\n"
    assert run(root, "policy", "show", "--topic", "order").exit_code == 0
    assert run(root, "policy", "set", "--topic", "orders", "--max-delay", "1d").stderr == ""


def test_what_was_there_once_and_what_has_only_messages_may_be_looked_at(root: str) -> None:
    """Its deliveries stay, and its history."""
    assert run(root, "receive", "--no-follow", "--subscription", "billing").exit_code == 0
    send(root, [OutgoingMessage("new", b"", key="k")])
    assert "waits in the inbox" in run(root, "trace", "--topic", "new", "--key", "k").stdout
    send(root, [OutgoingMessage("order", b"")])
    listed = run(root, "pending", "--topic", "order")
    warning = "delayline: topic 'order' has no subscription yet; did you mean 'orders'?\n"
    assert (listed.exit_code, listed.stderr) == (0, warning)
    assert run(root, "pending", "--topic", "orders").stderr == ""


def test_a_delay_that_the_usual_job_rejects_is_told_before_a_job_has_run(root: str) -> None:
    """The first job would list it among what it rejected, hours later."""
    for words, warned in ((["--deliver-after", "4000d"], True), (["--deliver-at", "9000-01-01"], True), ([], False)):
        sent = run(root, "send", "--topic", "orders", *words, "hello")
        assert (sent.exit_code, "rejects a delay of more than 3650d" in sent.stderr) == (0, warned)


def test_a_message_that_nobody_will_get_is_sent_with_a_warning(root: str) -> None:
    """The topic may be mistyped; or its subscription comes later, and begins with what is there."""
    result = run(root, "send", "--topic", "order", "hello")
    assert (result.exit_code, result.stdout[:10]) == (0, "1 sent as ")
    assert result.stderr == "delayline: topic 'order' has no subscription yet; did you mean 'orders'?\n"
    assert run(root, "send", "--topic", "orders", "hello").stderr == ""
    subscribe(root, Subscription("parted-partition-0", "s"))
    assert "topic 'parted' has no subscription yet" in run(root, "send", "--topic", "parted", "hello").stderr
    assert run(root, "topic", "--topic", "parted", "--partitions", "3").exit_code == 0
    assert run(root, "send", "--topic", "parted", "hello").stderr == ""


def test_what_nobody_will_get_is_not_taken_out_of_a_broker(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledged there and deleted here, it would be gone. What stays there may be tried out, with a warning."""
    took = list[str]()

    def take(at: str, *_: object, **__: object) -> Iterator[object]:
        took.append(at)
        return iter(())

    monkeypatch.setattr("pipeline.moving.pulsar.take", take)
    names = ["--service", "pulsar://h:1", "--admin", "http://h:2", "--topic", "a/b/order", "--subscription", "s"]
    refused = run(root, "import", "pulsar", *names, "--acknowledge")
    assert (refused.exit_code, len(took)) == (2, 0)
    allowed = "a topic that has a subscription, with --acknowledge; did you mean 'orders'?"
    assert f"into = 'order', allowed: {allowed}" in refused.stderr
    for words in ([], ["--acknowledge", "--dry-run"]):
        tried = run(root, "import", "pulsar", *names, *words)
        assert (tried.exit_code, "topic 'order' has no subscription yet" in tried.stderr) == (0, True)
    assert run(root, "import", "pulsar", *names, "--into", "public/default/orders", "--acknowledge").stderr == ""
    assert len(took) == 3


@pytest.mark.parametrize("asked", ["parted-partition-7", "orders-partition-0", "parted-partition-2", "parted"])
def test_a_partition_is_heard_by_who_has_it(root: str, asked: str) -> None:
    """`send` named the subscriptions of the topic for a partition that is not there; these get nothing of it."""
    assert run(root, "topic", "--topic", "parted", "--partitions", "3").exit_code == 0
    assert run(root, "subscribe", "--topic", "parted", "--subscription", "q").exit_code == 0
    result = run(root, "send", "--topic", asked, "hello")
    nearest = asked.partition("-")[0]
    nobody = f"delayline: topic {asked!r} has no subscription yet; did you mean {nearest!r}?\n"
    is_heard = asked in ("parted-partition-2", "parted")
    assert (result.exit_code, result.stderr) == (0, "" if is_heard else nobody)
    assert result.stdout.rstrip().endswith(", for q") == is_heard
    assert (", for" in result.stdout) == is_heard


def test_a_run_on_a_folder_that_is_no_warehouse_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    """A new one was made of a mistyped name, in which nothing ever came."""
    result = run(str(tmp_path / "typo"), "run")
    assert (result.exit_code, (tmp_path / "typo").exists()) == (1, False)
    assert f"delayline init --warehouse {tmp_path / 'typo'}" in result.stderr


def test_a_path_is_told_from_the_root_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stands in another folder than they think sees it."""
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "here") in run("here", "pending").stderr
    assert str(tmp_path / "here") in run("here", "init").stdout


def test_the_version_is_that_of_the_package() -> None:
    """Stated in two files, as a package that is not installed has no metadata."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert invoke(["--version"]).stdout == f"delayline {stated}\n" == f"delayline {VERSION}\n"

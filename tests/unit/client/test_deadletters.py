"""Dead letters: what is listed, and what goes back to its topic, once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pipeline.client.subscribing import deadletters
from pipeline.client.subscribing.deadletters import NotedAhead, dead_letters, put_back
from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe
from pipeline.delta.deltars import append, open_table, path_of
from pipeline.subscriptions.policies import Policies
from schemas import INBOX, MESSAGES
from tests.support.client import message_row, new_warehouse, put
from tests.support.forged import INFO, version

DEAD, ORIGIN = "orders-billing-DLQ", ("orders", "billing")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Five dead letters in two ledgers, among messages of the topic that they come from."""
    new_warehouse(str(tmp_path))
    subscribe(str(tmp_path), Subscription("orders", "billing"))
    put(str(tmp_path), MESSAGES, letter(3, 0), letter(3, 1), message_row(4, 0, 0, "orders"))
    put(str(tmp_path), MESSAGES, letter(9, 0), letter(9, 1), letter(9, 2))
    return str(tmp_path)


def letter(ledger: int, entry: int, origin: str | None = "orders") -> dict[str, Any]:
    """A dead letter as settle and ingest leave it."""
    origins = {"subscription": "billing", "position": f"1:{entry}", "redelivery_count": "3", "cause": "nack"}
    origins |= {} if origin is None else {"topic": origin}
    properties = {"colour": "red", **{f"delayline.{name}": text for name, text in origins.items()}}
    row = message_row(ledger, entry, 0, DEAD)
    return row | {"message_key": "k", "properties": properties, "payload": f"{ledger}.{entry}".encode()}


def sent(root: str) -> list[dict[str, Any]]:
    """The rows of the inbox, by payload."""
    rows: list[dict[str, Any]] = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
    return sorted(rows, key=lambda row: row["payload"])


def test_a_dead_letter_says_where_it_comes_from_and_why_it_failed(root: str) -> None:
    """What its sender set stands apart from what settle says."""
    first, *rest = dead_letters(root, DEAD)
    assert (first.position, first.origin, first.subscription) == ((3, 0), "orders", "billing")
    assert (first.origin_position, first.redelivery_count, first.cause) == ("1:0", 3, "nack")
    assert (first.key, first.properties, first.payload) == ("k", {"colour": "red"}, b"3.0")
    assert [each.position for each in rest] == [(3, 1), (9, 0), (9, 1), (9, 2)]
    assert list(dead_letters(root, "it's another")) == []


def test_what_is_put_back_goes_to_its_topic_without_delay_and_says_what_it_was(root: str) -> None:
    """As its sender sent it, and now."""
    before = datetime.now(UTC)
    assert list(put_back(root, DEAD, ORIGIN)) == [5]
    row = sent(root)[0]
    assert before <= row["publish_time"] <= datetime.now(UTC)
    assert (row["topic"], row["message_key"], row["payload"]) == ("orders", "k", b"3.0")
    assert (row["deliver_at"], row["deliver_after_ms"]) == (None, None)
    assert dict(row["properties"]) == {"colour": "red", "delayline.put_back": f"{DEAD} 3:0"}


def test_what_has_no_value_has_none_when_it_is_put_back(root: str) -> None:
    """It came back with empty bytes, which is another message."""
    put(root, MESSAGES, letter(2, 0) | {"payload": None})
    assert next(dead_letters(root, DEAD)).payload is None
    assert list(put_back(root, DEAD, ORIGIN, 1)) == [1]
    assert [row["payload"] for row in sent(root)] == [None]


def test_each_is_put_back_once(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part first, the rest later, and nothing then; what comes after is put back as well."""
    monkeypatch.setattr(deadletters, "_AT_ONCE", 2)
    assert list(put_back(root, DEAD, ORIGIN, 3)) == [2, 1]
    assert [each.position for each in dead_letters(root, DEAD, origin=ORIGIN)] == [(9, 1), (9, 2)]
    assert len(list(dead_letters(root, DEAD, every=True))) == 5
    assert list(put_back(root, DEAD, ORIGIN)) == [2]
    assert list(put_back(root, DEAD, ORIGIN)) == []
    put(root, MESSAGES, letter(12, 0))
    assert list(put_back(root, DEAD, ORIGIN)) == [1]
    assert [row["payload"] for row in sent(root)] == [b"12.0", b"3.0", b"3.1", b"9.0", b"9.1", b"9.2"]


@pytest.mark.parametrize(("own", "other"), [(None, 2), (2, None), (3, 2), (2, 3)])
def test_of_two_processes_each_letter_is_put_back_by_one(
    root: str, monkeypatch: pytest.MonkeyPatch, own: int | None, other: int | None
) -> None:
    """One looks for letters, the other one commits: what the first one had found came twice."""
    write, began = append, list[int]()

    def after_the_other(*where: Any, **how: Any) -> int:  # noqa: ANN401 - as it is called
        if not began:
            began.append(1)
            assert list(put_back(root, DEAD, ORIGIN, other)) == [min(other or 5, 5)]
        return write(*where, **how)

    monkeypatch.setattr(deadletters, "append", after_the_other)
    assert sum(put_back(root, DEAD, ORIGIN, own)) == min(own or 5, 5 - (other or 5))
    assert len({row["payload"] for row in sent(root)}) == len(sent(root)) == min(5, (own or 5) + (other or 5))


def test_who_is_ended_in_between_goes_on_behind_his_last_commit(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta keeps the place beside the rows."""
    monkeypatch.setattr(deadletters, "_AT_ONCE", 2)
    assert next(put_back(root, DEAD, ORIGIN)) == 2
    assert list(put_back(root, DEAD, ORIGIN)) == [2, 1]
    assert len(sent(root)) == 5


def test_a_message_that_somebody_sent_there_himself_is_passed_over(root: str) -> None:
    """Nobody knows where it comes from."""
    put(root, MESSAGES, letter(10, 0, None), letter(10, 1))
    assert list(put_back(root, DEAD, ORIGIN)) == [6]
    assert b"10.0" not in [row["payload"] for row in sent(root)]


@pytest.mark.parametrize(
    "origins",
    [{"topic": "secrets"}, {"subscription": "another"}, {"topic": " "}, {"topic": "orders\ufffd"}],
    ids=str,
)
def test_a_forged_dead_letter_is_put_back_nowhere(root: str, origins: dict[str, str]) -> None:
    """Anybody may write its properties; only a subscription that sends its dead letters here can be its origin."""
    forged = letter(9, 3)
    forged["properties"] |= {f"delayline.{name}": text for name, text in origins.items()}
    put(root, MESSAGES, forged)
    assert list(put_back(root, DEAD, ORIGIN)) == [5]
    *_, last = dead_letters(root, DEAD, every=True)
    assert (last.position, last.origin, last.subscription, last.redelivery_count) == ((9, 3), "", "", 0)


def test_a_number_of_five_thousand_digits_stops_nobody(root: str) -> None:
    """Python refuses to read one, and the list of all letters failed."""
    forged = letter(9, 3)
    forged["properties"]["delayline.redelivery_count"] = "9" * 5_000
    put(root, MESSAGES, forged)
    assert [each.redelivery_count for each in dead_letters(root, DEAD)] == [3] * 5 + [0]


def test_letters_of_a_topic_that_a_policy_named_before_can_be_put_back(root: str) -> None:
    """The policy may have changed since they were sent."""
    subscribe(root, Subscription("orders", "other", policies=Policies(ack=True, dead_letter_topic=DEAD)))
    set_policies(root, "orders", "other", Policies(ack=True))
    put(root, MESSAGES, letter(9, 3) | {"properties": {"delayline.topic": "orders", "delayline.subscription": "other"}})
    assert list(put_back(root, DEAD, ("orders", "other"))) == [1]


def test_of_a_shared_topic_only_the_letters_of_one_subscription_are_put_back(root: str) -> None:
    """The others' cause is not repaired. Each has a place of its own, also behind what was put back of all of them."""
    other = {"delayline.topic": "orders", "delayline.subscription": "shipping"}
    subscribe(root, Subscription("orders", "shipping", policies=Policies(ack=True, dead_letter_topic=DEAD)))
    row = letter(10, 0)
    put(root, MESSAGES, row | {"properties": {**row["properties"], **other}}, letter(10, 1))
    assert [each.position for each in dead_letters(root, DEAD, origin=("orders", "shipping"))] == [(10, 0)]
    assert list(put_back(root, DEAD, ORIGIN, 2)) == [2]
    assert list(put_back(root, DEAD, ORIGIN)) == [4]
    assert list(put_back(root, DEAD, ("orders", "shipping"))) == [1]
    assert list(put_back(root, DEAD, ORIGIN)) == []
    assert sorted(each["payload"] for each in sent(root)) == [b"10.0", b"10.1", b"3.0", b"3.1", b"9.0", b"9.1", b"9.2"]


@pytest.mark.parametrize("name", [f"delayline-put-back {DEAD}", f"delayline-put-back-of {DEAD} orders billing"])
def test_a_number_that_somebody_else_noted_is_an_error_and_hides_no_letter(root: str, name: str) -> None:
    """All letters counted as put back, and nobody said so."""
    version(root, INBOX, INFO, {"txn": {"appId": name, "version": 1 << 60}})
    with pytest.raises(NotedAhead):
        list(put_back(root, DEAD, ORIGIN))
    assert len(list(dead_letters(root, DEAD, every=True))) == 5
    assert sent(root) == []


@pytest.mark.parametrize("own", [False, True], ids=["by an earlier release, of all", "of one subscription"])
@pytest.mark.parametrize("most", [0, 3])
def test_letters_are_put_back_once_each_after_somebody_has_noted_the_right_number(
    root: str, most: int, *, own: bool
) -> None:
    """The page says which one that is, and how it is noted; whoever put none back notes -1."""
    if most:
        assert list(put_back(root, DEAD, ORIGIN, most)) == [most]
    name = deadletters._application(DEAD, ORIGIN if own else None)
    version(root, INBOX, INFO, {"txn": {"appId": name, "version": 1 << 60}})
    with pytest.raises(NotedAhead) as refused:
        list(put_back(root, DEAD, ORIGIN))
    places = [dict(row["properties"])["delayline.put_back"].rpartition(" ")[2] for row in sent(root)]
    ledger, entry = max((tuple(map(int, each.split(":"))) for each in places), default=(0, -1))
    right = Transaction(refused.value.name, ledger * 2**31 + entry)
    inbox = DeltaTable(path_of(root, INBOX))
    nothing = inbox.schema().to_arrow().empty_table()
    write_deltalake(inbox, nothing, mode="append", commit_properties=CommitProperties(app_transactions=[right]))
    assert sum(put_back(root, DEAD, ORIGIN)) == 5 - most
    assert sorted(each["payload"] for each in sent(root)) == [b"3.0", b"3.1", b"9.0", b"9.1", b"9.2"]

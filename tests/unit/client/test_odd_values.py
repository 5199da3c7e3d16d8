"""Values of every wrong kind in every parameter of the public calls: the project's own errors, which name it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import everything as delayline
from pipeline.client import public
from tests.support.client import new_warehouse

NAIVE = datetime(2100, 1, 1)  # noqa: DTZ001 - that it has no zone is what is odd
ODD: tuple[Any, ...] = (None, 3, {}, "\ud800x", 1 << 80, NAIVE, b"x", float("nan"))
GIVEN: dict[str, Any] = {
    "topic": "t", "subscription": "s", "subscription_name": "s", "name": "s", "command_id": "c", "messages": [],
    "partitions": 1, "payload": b"x", "content": b"x", "callback": None, "max_redeliver_count": 1,
    "to": NAIVE.replace(tzinfo=UTC), "span": timedelta(hours=1), "policies": delayline.Policies(),
    "new": delayline.Subscription("t", "s"), "start_message_id": delayline.MessageId.earliest,
    "deliveries": None, "days": ["2026-12-25"],
}  # fmt: skip
"""What calls must be told, when something else of them is odd."""
SELECTING = {"cancel", "reschedule", "shift", "release_now", "trace"}
"""They name messages by a key, or in another way."""
NAMED = {
    "root": "warehouse", "service_url": "url", "subscription_name": "subscription", "start_message_id": "messageid",
    "unacked_messages_timeout_ms": "ack_timeout_ms", "name": "subscription",
}  # fmt: skip
"""Parameters that errors name by the word of the tables, or of the reference."""
OF_NONE = {
    "message_id": "key, where", "positions": "key, where", "position": "key", "subscription_name": "policy",
}  # fmt: skip
"""None says that a value is left out. What the error names is then missing, or of a topic."""
NOT_CALLED = {"aio", "schema", "spark", "close", "shutdown", "put"}
PARTS = (delayline.Client, delayline.Producer)


def calls() -> Iterator[tuple[str, str]]:
    """The names of the public functions and records, and of the methods of what a program holds."""
    for name in set(public.__all__) - NOT_CALLED:
        each = getattr(delayline, name)
        is_record = isinstance(each, type) and not issubclass(each, (BaseException, Enum, *PARTS))
        if inspect.isfunction(each) or (is_record and each in CHECKED):
            yield "", name
    for part in PARTS:
        for name, _ in inspect.getmembers(part, inspect.isfunction):
            if not name.startswith("_") and name not in NOT_CALLED:
                yield part.__name__, name


CHECKED = {
    delayline.OutgoingMessage, delayline.Subscription, delayline.Policies, delayline.TopicPolicies,
    delayline.ConsumerDeadLetterPolicy, delayline.ConsumerBatchReceivePolicy, delayline.ConsumerKeySharedPolicy,
    delayline.Deliveries,
}  # fmt: skip
"""Records and readers that programs make; the others they are given."""


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A warehouse, a client that waits for nothing, and its producer."""
    root = str(tmp_path_factory.mktemp("odd"))
    new_warehouse(root)
    delayline.subscribe(root, delayline.Subscription("t", "s"))
    client = delayline.Client(root, operation_timeout_seconds=0)
    yield {"": root, "Client": client, "Producer": client.create_producer("t")}
    client.close()


@pytest.mark.parametrize(("part", "name"), sorted(calls()))
def test_an_odd_value_is_refused_by_its_name_or_taken(
    part: str, name: str, held: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`'int' object has no attribute 'strip'` says neither what was wrong nor where."""
    monkeypatch.chdir(tmp_path)
    call = getattr(held[part], name) if part else getattr(delayline, name)
    known = inspect.signature(call).parameters.values()
    named = [each for each in known if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    given = {each.name: GIVEN[each.name] for each in named if each.default is each.empty and each.name in GIVEN}
    given |= {"root": held[""]} if any(each.name == "root" for each in named) else {}
    given |= {"key": "k"} if name in SELECTING else {}
    usual, wrong = _refusal(call, given), []
    for each in named:
        without = {} if each.name not in ("message_id", "where", "position", "positions") else {"key"}
        for value in ODD:
            mine = {arg: it for arg, it in given.items() if arg not in without} | {each.name: value}
            said = _refusal(call, mine)
            wanted = {each.name, NAMED.get(each.name, each.name)}
            wanted |= set(OF_NONE.get(each.name, "").split(", ")) - {""} if value is None else set()
            if said not in (None, usual) and not any(word in str(said) for word in wanted):
                wrong.append((each.name, value, said))
    assert not wrong


def _refusal(call: Callable[..., object], given: dict[str, Any]) -> str | None:
    """What a call says when it refuses; None: it is done. No other error may come."""
    positional = [
        each.name for each in inspect.signature(call).parameters.values() if each.kind is each.POSITIONAL_ONLY
    ]
    try:
        call(
            *(given[name] for name in positional if name in given),
            **{k: v for k, v in given.items() if k not in positional},
        )
    except delayline.DelaylineError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        return f"LEAKED {type(error).__name__}"
    return None


ONCE: dict[str, Callable[[Any], object]] = {
    "message_listener = 3: ": lambda root: delayline.Client(root).subscribe("t", "s", **ODD_HOW["listener"]),
    "type ConsumerDeadLetterPolicy or": lambda root: delayline.Client(root).subscribe("t", "s", **ODD_HOW["letters"]),
    "message_id = 'x', allowed: ": lambda root: delayline.Client(root).cancel("t", **ODD_HOW["id"]),
    "content = '\\ud800', allowed: ": lambda _: delayline.schema.StringSchema().encode("\ud800"),
    "partitions = 1000000000, allowed: ": lambda root: delayline.create_partitioned_topic(root, "t", 10**9),
}
ODD_HOW: dict[str, Any] = {
    "listener": {"message_listener": 3}, "letters": {"dead_letter_policy": {}}, "id": {"message_id": "x"}
}  # fmt: skip


@pytest.mark.parametrize("says", ONCE)
def test_what_is_odd_in_one_call_is_told_at_once(held: dict[str, Any], says: str) -> None:
    """A listener that is none was a timeout, a number of partitions all of the memory."""
    with pytest.raises(delayline.DelaylineError) as refused:
        ONCE[says](held[""])
    assert says in str(refused.value)

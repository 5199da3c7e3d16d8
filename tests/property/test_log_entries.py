"""Strangers write into the logs that are open to them what the protocol allows, broken files, and paths elsewhere.

Ingest, dispatch, settle and the clients are the real ones, without a JVM. No stage ends and no client fails; each row
in a file that can be read becomes a message, once; each file that cannot be read is listed, once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.client import Client
from pipeline.client.insight.pending import pending
from pipeline.client.insight.trace import trace
from pipeline.client.insight.waiting import in_inbox
from pipeline.client.subscribing.deadletters import dead_letters
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.deliveries import Deliveries
from pipeline.client.tables.logs import LeaseLog
from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.policies import Policies
from schemas import COMMANDS, CONSUMER_EVENTS, DELIVERIES, INBOX, MESSAGES, REJECTED_INGEST
from tests.support.examined import wrong
from tests.support.logentries import Strangers
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
LONG = settings.get_profile("default").max_examples < settings().max_examples
EXAMPLES, STEPS = (400, 8) if LONG else (3, 3)
UNACCOUNTED = {"not_taken", "taken_twice", "not_accepted", "not_checked", "dead_letters_gone"}
"""What the doctor must not say: a check that fails is one of them. That files are gone or broken it may say."""


def acknowledged(stages: Stages) -> list[dict[str, Any]]:
    """What a consumer says of all that was delivered to it, a third of it a failure."""
    rows = open_table(stages.root, DELIVERIES).to_pyarrow_table().to_pylist()
    mine = [row for row in rows if row["subscription"] == "s"]
    names = ("topic", "subscription", "life", "ledger_id", "redelivery_count")
    return [
        {name: row[name] for name in names}
        | {"kind": "nack" if row["entry_id"] % 3 == 2 else "ack", "at": at(0)}
        | {"first_entry": row["entry_id"], "last_entry": row["entry_id"]}
        for row in mine
    ]


def clients(root: str) -> dict[str, Callable[[], object]]:
    """What programs and commands ask of a warehouse, by name."""
    return {
        "pending": lambda: pending(root),
        "trace": lambda: trace(root, "t", key="k"),
        "deliveries": lambda: list(Deliveries(root).take("t", "plain")),
        "leases": lambda: LeaseLog(root, Files()).read(),
        "dead letters": lambda: list(dead_letters(root, "t-s-DLQ", every=True)),
        "untaken": lambda: in_inbox(root),
    }


def run(stages: Stages, rng: random.Random) -> None:
    """All stages, of which some begin anew."""
    for name in ("ingest", "dispatch", "settle"):
        if rng.random() < 0.3:
            stages.restart(name)
    stages.instant += 1_000
    assert stages.ingest()
    stages.schedule.step(stages.instant)
    while stages.has_dispatch:
        assert stages.dispatch()
    assert stages.settle()


def play(folder: str, seed: int) -> None:
    """A world in which strangers write between the steps of the stages.

    Raises:
        AssertionError: something is lost, or there twice, or a client failed.
    """
    rng, stages = random.Random(seed), Stages(f"{folder}/warehouse")  # noqa: S311 - a seed
    policies = Policies.of_map({"ack": "true", "max_redeliveries": "0"})
    for name, own in (("s", policies), ("plain", Policies())):
        subscribe(stages.root, Subscription("t", name, tick_ms=1, policies=own))
    stages.instant = T0
    assert stages.ingest()
    strangers, sent = Strangers(stages.root, rng), 0
    for step in range(STEPS):
        strangers.write(INBOX, [message(f"{seed}.{step}.{number}") for number in range(3)])
        if rng.random() < 0.5:
            strangers.write(CONSUMER_EVENTS, acknowledged(stages)[-3:] or [{"kind": "ack", "topic": "t"}])
        if rng.random() < 0.3:
            strangers.write(COMMANDS, [{"kind": "cancel", "topic": "u", "command_id": "x"}])
        if rng.random() < 0.3:
            with Client(stages.root) as client:
                client.create_producer("t", rng.choice(("shop", None))).send(f"sent {sent}".encode())
            sent += 1
        run(stages, rng)
    run(stages, rng)
    run(stages, rng)
    rows = open_table(stages.root, MESSAGES).to_pyarrow_table(columns=["topic", "payload"]).to_pylist()
    found = sorted(row["payload"] for row in rows if row["topic"] == "t")
    wanted = [bytes(row["payload"]) for row in strangers.good] + [f"sent {number}".encode() for number in range(sent)]
    assert found == sorted(wanted)
    reasons = open_table(stages.root, REJECTED_INGEST).to_pyarrow_table(columns=["reason"]).to_pydict()["reason"]
    assert sum(each in ("broken_file", "foreign_path") for each in reasons) == strangers.left
    assert reasons.count("not_an_append") == strangers.changes
    for name, ask in clients(stages.root).items():
        try:
            ask()
        except Exception as error:
            raise AssertionError(name) from error
    assert not {what for what, _ in wrong(stages.root)} & UNACCOUNTED


@settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_whatever_strangers_write_into_logs_nothing_is_lost_and_nobody_ends(seed: int) -> None:
    """One producer's entry stands in nobody's way."""
    folder = mkdtemp()
    logging.disable(logging.ERROR)
    try:
        play(folder, seed)
    finally:
        logging.disable(logging.NOTSET)
        rmtree(Path(folder), ignore_errors=True)

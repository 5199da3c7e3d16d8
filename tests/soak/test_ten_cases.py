"""Ten cases that users meet beside the measured path, on one live job, by commands and small programs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.public import Client, ConsumerType, Deliveries, Timeout
from pipeline.delta.deltars import path_of
from pipeline.storage.arrays import arrow_schema
from schemas import INBOX, SUBSCRIPTIONS
from tests.support.forged import INFO, add, file_of, version
from tests.support.modules import ROOT
from tests.support.operations import lines
from tests.support.strangers import put

COMMAND = (sys.executable, "-m", "jobs.cli")
PATIENCE_S = 120
COPIED = "copied"
READ = {
    "inbox": ["payload"],
    "messages": ["ledger_id", "entry_id", "payload"],
    "consumer_events": ["kind", "ledger_id", "first_entry", "last_entry"],
}
"""The columns of a copy that the case of the copy reads."""
SOURCE = """
[source.landing]
from = "csv:{folder}?header=true"
columns = "id STRING"
topic = "'files'"
payload = "id"
"""


def call(*words: str) -> str:
    """What a command prints when all is well."""
    done = subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Job:
    """A warehouse, the folder from which it takes files, and the process that runs on it."""

    root: str
    landing: Path
    process: subprocess.Popen[bytes]

    def command(self, *words: str) -> str:
        """A command on the warehouse."""
        return call(*words, "-w", self.root)

    def payloads(self, topic: str, subscription: str) -> list[bytes]:
        """What was delivered so far."""
        return [each.payload for each in Deliveries(self.root).take(topic, subscription)]

    def until(self, look: Callable[[], bool]) -> None:
        """Wait until something is so, and then for what may come beside it."""
        end = time.monotonic() + PATIENCE_S
        while not look() and time.monotonic() < end:
            assert self.process.poll() is None
            time.sleep(0.3)
        time.sleep(3.0)
        assert self.process.poll() is None


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """One job for all cases."""
    folder = tmp_path_factory.mktemp("ten")
    root, landing, profile = str(folder / "warehouse"), folder / "landing", folder / "profile.toml"
    landing.mkdir()
    profile.write_text((ROOT / "conf" / "local.toml").read_text() + SOURCE.format(folder=landing))
    call("init", "-w", root)
    with (folder / "log").open("wb") as log:
        words = [*COMMAND, "run", "--init", "-w", root, "--profile", str(profile)]
        process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)  # noqa: S603
    try:
        end = time.monotonic() + PATIENCE_S
        while b"Running on" not in (folder / "log").read_bytes():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.2)
        yield Job(root, landing, process)
        assert process.poll() is None, (folder / "log").read_text()[-4_000:]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def received(root: str, topic: str, name: str, work: Callable[[Any, Any], None], quiet_ms: int = 20_000) -> list[bytes]:
    """What a consumer of a shared subscription is handed until nothing comes for some time."""
    got = list[bytes]()
    with Client(root) as client:
        consumer = client.subscribe(topic, name, ConsumerType.Shared)
        while True:
            try:
                message = consumer.receive(timeout_millis=quiet_ms)
            except Timeout:
                return got
            got.append(message.data())
            work(consumer, message)


def test_partitions_that_grow_while_consumers_are_down(job: Job) -> None:
    """What was sent to the new ones meanwhile comes."""
    job.command("topic", "-t", "grow", "--partitions", "2")
    assert received(job.root, "grow", "mail", lambda *_: None, quiet_ms=4_000) == []
    job.command("topic", "-t", "grow", "--partitions", "5")
    sent = [b"%d" % number for number in range(60)]
    with Client(job.root) as client:
        producer = client.create_producer("grow")
        for payload in sent:
            producer.send_async(payload, None, partition_key=payload.decode())
        producer.flush()
    time.sleep(3.0)
    got = received(job.root, "grow", "mail", lambda consumer, message: consumer.acknowledge(message))
    assert sorted(got) == sorted(sent)


def test_a_standby_producer_that_sends_everything_again(job: Job) -> None:
    """It was made before the first one's last message."""
    job.command("subscribe", "-t", "standby", "-s", "s", "--start", "earliest")
    with Client(job.root) as one, Client(job.root) as two:
        first, standby = (each.create_producer("standby", "loader", initial_sequence_id=-1) for each in (one, two))
        for number in range(7):
            first.send(b"%d" % number, sequence_id=number)
        for number in range(11):
            standby.send(b"%d" % number, sequence_id=number)
    job.until(lambda: len(job.payloads("standby", "s")) >= 11)
    assert sorted(job.payloads("standby", "s")) == sorted(b"%d" % number for number in range(11))


def test_a_delay_that_has_passed_given_to_a_nack(job: Job) -> None:
    """It is none: each message comes again at once, and at last it is a dead letter."""
    words = ("--ack", "--backoff", "1s:1:1s", "--max-redeliveries", "2", "--start", "earliest")
    job.command("subscribe", "-t", "late", "-s", "s", *words)
    send(job.root, [OutgoingMessage("late", b"%d" % number) for number in range(9)])
    draw = random.Random(3)  # noqa: S311 - seeded
    got = received(
        job.root, "late", "s", lambda each, message: each.negative_acknowledge(message, draw.choice((-5_000, -1, 0)))
    )
    assert Counter(got) == {b"%d" % number: 3 for number in range(9)}
    assert len(letters(job, "late-s-DLQ")) == 9


def letters(job: Job, topic: str) -> list[bytes]:
    """Dead letters of a topic, as they lie in `inbox`."""
    rows = DeltaTable(path_of(job.root, INBOX)).to_pyarrow_table(columns=["topic", "payload"]).to_pylist()
    return [row["payload"] for row in rows if row["topic"] == topic]


def test_texts_that_are_no_utf_8(job: Job) -> None:
    """The good row beside them comes, and the bad ones are listed."""
    job.command("subscribe", "-t", "texts", "-s", "s", "--start", "earliest")
    rows = [{"topic": b"texts", "message_key": b"\xff", "payload": b"bad"}, {"topic": b"texts", "payload": b"good"}]
    put(job.root, INBOX, *rows, {"topic": b"texts", "properties": [(b"\xff", b"x")], "payload": b"bad, too"})
    job.until(lambda: len(job.payloads("texts", "s")) > 0)
    assert job.payloads("texts", "s") == [b"good"]
    refused = DeltaTable(f"{job.root}/rejected_ingest").to_pyarrow_table().to_pylist()
    assert sum("UTF-8" in str(row) or "utf" in str(row) for row in refused) == 2
    job.command("pending")


def test_an_append_with_the_txn_of_settle(job: Job) -> None:
    """Dead letters come all the same."""
    job.command("subscribe", "-t", "txn", "-s", "s", "--ack", "--max-redeliveries", "0", "--start", "earliest")
    row = arrow_schema(INBOX.columns).empty_table()
    how = CommitProperties(app_transactions=[Transaction("delayline-settle", 2**60)])
    write_deltalake(path_of(job.root, INBOX), row, mode="append", schema_mode="merge", commit_properties=how)
    send(job.root, [OutgoingMessage("txn", b"%d" % number) for number in range(6)])
    received(job.root, "txn", "s", lambda consumer, message: consumer.negative_acknowledge(message), quiet_ms=8_000)
    job.until(lambda: len(letters(job, "txn-s-DLQ")) >= 6)
    assert sorted(letters(job, "txn-s-DLQ")) == [b"%d" % number for number in range(6)]


def test_two_active_lines_of_one_subscription(job: Job) -> None:
    """The last one counts, and the doctor says it."""
    job.command("subscribe", "-t", "two", "-s", "s", "--ack", "--start", "earliest")
    line = {"topic": b"two", "subscription": b"s", "tick_ms": 1_000, "active": True, "start": b"earliest"}
    put(job.root, SUBSCRIPTIONS, line | {"type": b"shared", "policies": [(b"ack", b"true"), (b"slots", b"8")]})
    result = subprocess.run([*COMMAND, "doctor", "-w", job.root, "--json"], cwd=ROOT, capture_output=True, check=False)  # noqa: S603
    assert b"two_lines" in result.stdout
    sent = [b"%d" % number for number in range(10)]
    send(job.root, [OutgoingMessage("two", each) for each in sent])
    got = received(job.root, "two", "s", lambda consumer, message: consumer.acknowledge(message), quiet_ms=8_000)
    assert sorted(got) == sent
    job.command("unsubscribe", "-t", "two", "-s", "s")


def test_a_rate_after_a_rest(job: Job) -> None:
    """A rest saves nothing up."""
    job.command("subscribe", "-t", "rate", "-s", "s", "--tick", "250ms", "--start", "earliest")
    job.command("policy", "set", "-t", "rate", "-s", "s", "--max-rate", "10")
    time.sleep(20.0)
    due = int(time.time() * 1_000) + 4_000
    send(
        job.root,
        [OutgoingMessage("rate", b"x", deliver_at=datetime.fromtimestamp(due / 1_000, UTC)) for _ in range(200)],
    )
    for second in (6.0, 9.0, 12.0):
        time.sleep(max(0.0, due / 1_000 + second - time.time()))
        assert 0 < len(job.payloads("rate", "s")) <= 10 * (time.time() - due / 1_000 + 2.0)


def test_files_with_an_old_time(job: Job) -> None:
    """All come, whatever their times."""
    job.command("subscribe", "-t", "files", "-s", "s", "--start", "earliest")
    for number, days in enumerate((0, 8, 40, 1, 400)):
        written = job.landing.parent / f"{number}.csv"
        written.write_text(f"id\nf{number}\n")
        os.utime(written, (time.time() - 86_400 * days,) * 2)
        written.rename(job.landing / written.name)
        time.sleep(2.0)
    job.until(lambda: len(job.payloads("files", "s")) >= 5)
    assert sorted(job.payloads("files", "s")) == [b"f%d" % number for number in range(5)]


def test_the_hot_copy_of_our_own_page(job: Job, tmp_path: Path) -> None:
    """Copied part by part while consumers acknowledge and give back: on the copy each message is there."""
    words = ("--ack", "--backoff", "1s:1:2s", "--start", "earliest")
    job.command("subscribe", "-t", COPIED, "-s", "s", *words)
    variables = {**os.environ, "W": job.root, "B": str(tmp_path / "copy")}
    page = [each for each in lines() if each.startswith(("for part", "find")) and "$B.live" in each]
    assert len(page) == 6
    sent = [b"%d" % number for number in range(400)]
    draw = random.Random(5)  # noqa: S311 - seeded

    def work(consumer: Any, message: Any) -> None:  # noqa: ANN401 - either of the client
        if draw.random() < 0.3:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)

    variables["PAGE"] = "\nsleep 1\n".join(page)
    # As the page says: begun again, in an empty folder, when a file was gone before it was copied.
    copy_all = 'for n in 1 2 3; do rm -rf "$B.live"; mkdir "$B.live"; bash -ec "$PAGE" && exit 0; done; exit 1'
    copying: subprocess.Popen[bytes] | None = None
    with Client(job.root) as client:
        consumer, producer = client.subscribe(COPIED, "s", ConsumerType.Shared), client.create_producer(COPIED)
        for number, payload in enumerate(sent):
            producer.send_async(payload, None, deliver_at=int(time.time() * 1_000) + draw.choice((0, 500, 20_000)))
            if number == 120:
                copying = subprocess.Popen(["bash", "-c", copy_all], env=variables)  # noqa: S603, S607
            try:
                work(consumer, consumer.receive(timeout_millis=60))
            except Timeout:
                continue
        producer.flush()
        assert copying is not None
        assert copying.wait(PATIENCE_S) == 0
    copy = f"{variables['B']}.live"
    there, acknowledged = at_copy(copy)
    call("rebuild", "-w", copy, "--stage", "all")
    process = subprocess.Popen([*COMMAND, "run", "-w", copy], cwd=ROOT)  # noqa: S603
    try:
        got = set(received(copy, COPIED, "s", lambda consumer, message: consumer.acknowledge(message), quiet_ms=30_000))
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert there - got - acknowledged == set()
    shutil.rmtree(copy)


def at_copy(root: str) -> tuple[set[bytes], set[bytes]]:
    """The payloads of the copied topic that are in the inbox of a copy, and those that are acknowledged there."""
    where = {name: of_topic(root, name, columns) for name, columns in READ.items()}
    places = {(row["ledger_id"], row["entry_id"]): row["payload"] for row in where["messages"]}
    said = [row for row in where["consumer_events"] if row["kind"] == "ack"]
    ranges = ((row["ledger_id"], range(row["first_entry"], row["last_entry"] + 1)) for row in said)
    settled = {places[ledger, entry] for ledger, entries in ranges for entry in entries if (ledger, entry) in places}
    return {row["payload"] for row in where["inbox"]}, settled


def of_topic(root: str, name: str, columns: list[str]) -> list[dict[str, Any]]:
    """Rows of the copied topic; another one has texts that nobody can read."""
    table = DeltaTable(f"{root}/{name}").to_pyarrow_table(columns=["topic", *columns])
    rows: list[dict[str, Any]] = table.filter(pc.field("topic") == COPIED).to_pylist()
    return rows


def test_an_entry_of_the_log_that_points_outside(job: Job, tmp_path: Path) -> None:
    """The file is not read, and it is listed; good ones beside it are. The last one: other readers stumble over it."""
    job.command("subscribe", "-t", "paths", "-s", "s", "--start", "earliest")
    file_of(str(tmp_path), INBOX, "x.parquet", [{"topic": "paths", "payload": b"foreign"}])
    outside = str(tmp_path / INBOX.name / "x.parquet")
    size = file_of(job.root, INBOX, "fine.parquet", [{"topic": "paths", "payload": b"fine"}])
    bad = (outside, f"file://{outside}", os.path.relpath(outside, path_of(job.root, INBOX)))
    version(job.root, INBOX, INFO, *(add(path) for path in bad), add("fine.parquet", size))
    job.until(lambda: len(job.payloads("paths", "s")) > 0)
    assert job.payloads("paths", "s") == [b"fine"]
    refused = DeltaTable(f"{job.root}/rejected_ingest").to_pyarrow_table(columns=["reason"]).column("reason")
    assert sum("foreign_path" in each for each in refused.to_pylist()) == len(bad)

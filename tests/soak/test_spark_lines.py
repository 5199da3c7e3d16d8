"""Each line of Spark with real processes, and one warehouse that moves between them; `make test-matrix` runs it."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipeline.client.choices import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from schemas import TABLES
from tests.support import jobs
from tests.support.jobs import Process, delivered, said
from tests.support.matrix import lines, python_of
from tests.support.modules import ROOT
from tests.support.services import ended_well, service

pytestmark = pytest.mark.soak
BACK_AND_FORTH = ("4.0", "4.2", "4.1", "4.0")
EACH, APART_MS = 120, 1_000
"""Messages that are sent to each job, and the time from one to the next: the last ones wait for two minutes."""
SEEN = 15
"""So many come before a job is stopped."""
WORK, FAILS, PATIENCE_MS = 20, b"7", 60_000
START, SPAN_H, MANY, AT_ONCE = datetime(2026, 3, 1, tzinfo=UTC), 36, 2_000, 20_000


@pytest.fixture(params=sorted(lines()))
def python(request: pytest.FixtureRequest) -> Path:
    """The interpreter of a line; `make test-matrix` makes those that are not there."""
    return there(request.param)


def there(line: str) -> Path:
    """The interpreter of a line."""
    found = python_of(line)
    if not found.exists():
        pytest.skip(f"Spark {line} is not there: make test-matrix")
    return found


def command(python: Path, *words: str) -> list[str]:
    """A command of delayline, from the tree."""
    return [str(python), "-m", "jobs.cli", *words]


def done(*words: str) -> str:
    """Run something to its end in good order; what it printed."""
    found = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)  # noqa: S603 - our own
    assert found.returncode == 0, f"{words}: {found.stdout}{found.stderr}"
    return found.stdout


def run_until(python: Path, root: Path, folder: Path, count: int) -> None:
    """Run a job until so many messages are delivered, and stop it as a supervisor does."""
    with service(command(python, "run", "-w", str(root), "--set", "run.maintain_ms=5000"), folder) as job:
        until_running(job, folder)
        jobs.until(lambda: len(delivered(root)) >= count, job, folder)
        job.send_signal(signal.SIGTERM)
        ended_well(job, folder)


def until_running(job: Process, folder: Path) -> None:
    """Wait for the stages."""
    jobs.until(lambda: "Running on" in said(folder), job, folder)


def maintained_and_healthy(python: Path, root: Path) -> None:
    """A round of maintenance ends well, the doctor finds nothing, and every table is one that all engines read."""
    done(str(python), "-m", "jobs.maintain", "--warehouse", str(root))
    done(*command(python, "doctor", "-w", str(root)))
    for table in TABLES:
        opened = DeltaTable(str(root / table.name))
        protocol = opened.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), table.name
        assert not protocol.reader_features, table.name
        assert not protocol.writer_features, table.name
        assert opened.to_pyarrow_table().num_rows == opened.count(), table.name


def test_a_warehouse_goes_from_line_to_line_with_messages_that_wait(tmp_path: Path) -> None:
    """What one line took in and has in its state another one releases: each message once, and nothing is damaged."""
    for line in set(BACK_AND_FORTH):
        there(line)
    root, sent = tmp_path / "warehouse", list[str]()
    create_all(str(root))
    subscribe(str(root), Subscription("t", "s", start="earliest", tick_ms=1))
    for step, line in enumerate(BACK_AND_FORTH):
        names = [f"{step}-{number}" for number in range(EACH)]
        send(
            str(root),
            [OutgoingMessage("t", name.encode(), deliver_after_ms=n * APART_MS) for n, name in enumerate(names)],
        )
        sent += names
        is_last, before = step + 1 == len(BACK_AND_FORTH), len(delivered(root))
        run_until(there(line), root, tmp_path / f"{step}-{line}", len(sent) if is_last else before + SEEN)
        waits = len(sent) - len(delivered(root))
        print(f"Spark {line}: {len(sent)} sent, {waits} wait")
        assert (waits == 0) is is_last
    assert Counter(delivered(root)) == Counter(sent)
    maintained_and_healthy(there(BACK_AND_FORTH[-1]), root)


def test_a_line_delivers_live_and_gives_up_what_fails(python: Path, tmp_path: Path) -> None:
    """Acknowledged, sent again, a dead letter in the end."""
    root, folder, handled = tmp_path / "warehouse", tmp_path / "job", Counter[str]()
    create_all(str(root))
    policy = ConsumerDeadLetterPolicy(1, "given-up")
    with Client(str(root)) as client, service(command(python, "run", "-w", str(root)), folder) as job:
        until_running(job, folder)
        letters = client.subscribe("given-up", "people", initial_position=InitialPosition.Earliest)
        consumer = client.subscribe(
            "orders",
            "shop",
            ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=1_000,
            dead_letter_policy=policy,
        )
        producer = client.create_producer("orders")
        for number in range(WORK):
            producer.send(str(number).encode(), deliver_after=timedelta(seconds=2))
        while handled.total() < WORK + 1:
            message = consumer.receive(PATIENCE_MS)
            handled[message.data().decode()] += 1
            settle = consumer.negative_acknowledge if message.data() == FAILS else consumer.acknowledge
            settle(message)
        assert letters.receive(PATIENCE_MS).data() == FAILS
        job.send_signal(signal.SIGTERM)
        ended_well(job, folder)
    assert handled == Counter({str(number): 1 for number in range(WORK)} | {FAILS.decode(): 2})
    maintained_and_healthy(python, root)


def test_a_line_replays_a_day_and_a_half_and_releases_many_at_once(python: Path, tmp_path: Path) -> None:
    """Each message once, in the order of their times; with four tasks, whose rows are numbered as one."""
    root, source = tmp_path / "warehouse", tmp_path / "input.parquet"
    spread = [timedelta(hours=SPAN_H) * number / MANY for number in range(MANY)]
    dues = [START + timedelta(minutes=1) + each for each in spread] + [START + timedelta(hours=12)] * AT_ONCE
    rows = {
        "topic": ["t"] * len(dues),
        "payload": [str(number).encode() for number in range(len(dues))],
        "publish_time": [START + timedelta(seconds=1)] * len(dues),
        "deliver_at": dues,
    }
    pq.write_table(pa.table(rows), source)
    create_all(str(root))
    subscribe(str(root), Subscription("t", "s", start="earliest", tick_ms=1))
    many = ["--set", "settings.driver_rows=0", "--set", "settings.partitions=4", "--set", "session.cores=2"]
    ends = ["--from", START.isoformat(), "--to", (START + timedelta(hours=SPAN_H + 1)).isoformat(), "--step", "3h"]
    done(*command(python, "replay", "-w", str(root), "--input", str(source), *ends, *many))
    assert Counter(delivered(root)) == Counter(str(number) for number in range(len(dues)))
    in_order(root)
    maintained_and_healthy(python, root)


def in_order(root: Path) -> None:
    """Each release is numbered from 1 without a gap, by due time and then by place in the log."""
    columns = ["batch_id", "sequence", "deliver_at", "ledger_id", "entry_id"]
    rows = DeltaTable(str(root / "deliveries")).to_pyarrow_table(columns=columns)
    releases: dict[int, list[tuple[int, ...]]] = {}
    for batch, sequence, *key in zip(*(rows.column(name).to_pylist() for name in columns), strict=True):
        releases.setdefault(batch, []).append((sequence, *key))
    for each in releases.values():
        each.sort()
        assert [row[0] for row in each] == list(range(1, len(each) + 1))
        assert [row[1:] for row in each] == sorted(row[1:] for row in each)
    assert max(map(len, releases.values())) > AT_ONCE

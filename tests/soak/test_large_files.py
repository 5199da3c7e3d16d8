"""Files of the inbox that hold more than anybody can, with the permitted payloads, through `delayline run` as it is."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from benchmarks.support.processes import memory
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from tests.support.jobs import module
from tests.support.modules import ROOT

LARGEST = 5 << 20
"""The default of `Settings.max_payload_bytes`."""
PATIENCE_S = float(os.environ.get("DELAYLINE_LARGE_PATIENCE_S", "600"))
LIMIT = 6 << 30
"""Of all processes together: a heap of 2 GB, what a JVM has beside it, and what the driver holds of texts."""


def equal(number: int) -> bytes:
    """A payload that compresses to a fiftieth: nothing tells from outside how much a file of them holds."""
    return f"{number:016}".encode() * (LARGEST // 16)


def different(number: int) -> bytes:
    """A payload that does not compress."""
    return random.Random(number).randbytes(LARGEST)  # noqa: S311 - not a secret


@pytest.mark.parametrize(("count", "payload"), [(220, equal), (410, different)], ids=["1.1 GB", "2.1 GB"])
def test_a_file_of_the_largest_payloads_is_delivered_in_bounded_memory(
    tmp_path: Path, count: int, payload: object
) -> None:
    """With the default profile: nobody's messages wait for one producer's file, and a neighbour's come as well."""
    assert callable(payload)
    root = str(tmp_path / "warehouse")
    create_all(root)
    subscribe(root, Subscription("t", "s"))
    drawn = random.Random(count)  # noqa: S311 - not a secret
    send(
        root,
        [OutgoingMessage("t", payload(n), key=str(n), deliver_after_ms=drawn.randrange(3_000)) for n in range(count)],
    )
    send(root, [OutgoingMessage("t", b"small", key="neighbour")])
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen(module("cli", "run", "-w", root), cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
    begun, most = time.monotonic(), dict[str, int]()
    try:
        while (found := DeltaTable(f"{root}/deliveries").to_pyarrow_dataset().count_rows()) < count + 1:
            assert job.poll() is None, (tmp_path / "log").read_text()[-5_000:]
            assert time.monotonic() < begun + PATIENCE_S, f"{found}: {(tmp_path / 'log').read_text()[-5_000:]}"
            now = memory(job.pid)
            most = {kind: max(most.get(kind, 0), used.resident) for kind, used in now.items()}
            time.sleep(0.2)
        took = time.monotonic() - begun
        print(f"{count} payloads: {took:.0f} s; at most", {kind: f"{peak >> 20:,} MB" for kind, peak in most.items()})
        job.terminate()
        assert job.wait(PATIENCE_S) == 0
    finally:
        job.kill()
        job.wait()
    rows = DeltaTable(f"{root}/deliveries").to_pyarrow_dataset(as_large_types=True)
    keys, sizes = set(), set()
    for batch in rows.to_batches(columns=["message_key", "payload"], batch_size=8):
        for key, text in zip(*(batch.column(name).to_pylist() for name in ("message_key", "payload")), strict=True):
            keys.add(key)
            sizes.add(len(text))
            assert key == "neighbour" or text == payload(int(key))
    assert (len(keys), sizes) == (count + 1, {LARGEST, 5})
    assert sum(most.values()) < LIMIT

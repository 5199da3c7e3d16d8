"""Producer and consumer of the benchmark with Pulsar, each a process of its own."""

from __future__ import annotations

import os
import struct
import time
from typing import Any

import numpy as np
import pulsar

_EVERY_S, _LOOK_MS = 0.05, 500
_HEAD = struct.Struct("<qq")
"""The number of a message, and when it is due, ms UTC."""
SUBSCRIPTION = "s"


def _client(service: str) -> Any:  # noqa: ANN401 - it has no types
    return pulsar.Client(service, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))


def produce(service: str, topic: str, workload: dict[str, Any], *, delayed: bool) -> None:
    """Send messages at a rate, each with a due time: for the broker, or among the properties for others.

    Raises:
        OSError: the broker did not take all.
    """
    random, failed = np.random.default_rng(workload["seed"]), list[Any]()
    content = b"x" * (workload["payload_bytes"] - _HEAD.size)
    client, count = _client(service), round(workload["rate"] * _EVERY_S)
    producer = client.create_producer(f"persistent://{topic}", block_if_queue_full=True, batching_enabled=not delayed)

    def said(result: Any, _message_id: object) -> None:  # noqa: ANN401 - the client's
        if result != pulsar.Result.Ok:
            failed.append(result)

    begin = time.time()
    for step in range(round(workload["seconds"] / _EVERY_S)):
        time.sleep(max(0.0, begin + step * _EVERY_S - time.time()))
        delays = random.integers(workload["low_ms"], workload["high_ms"], count, endpoint=True)
        dues = (time.time_ns() // 1_000_000 + delays).tolist()
        for number, due in enumerate(dues, step * count):
            how = {"deliver_at": due} if delayed else {"properties": {"due": str(due)}}
            producer.send_async(_HEAD.pack(number, due) + content, said, partition_key=str(number % 1_000), **how)
    producer.flush()
    client.close()
    if failed:
        raise OSError(f"{len(failed)} messages were not taken: {failed[0]}")


def consume(service: str, topic: str, file: str, ended: Any) -> None:  # noqa: ANN401 - an event of a context
    """Receive until told to end; then write number, due time and time of receipt (ms) of each message."""
    client, seen = _client(service), list[tuple[int, int, int]]()
    consumer = client.subscribe(f"persistent://{topic}", SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
    while not ended.is_set():
        try:
            message = consumer.receive(_LOOK_MS)
        except pulsar.Timeout:
            continue
        seen.append((*_HEAD.unpack_from(message.data()), time.time_ns() // 1_000_000))
        consumer.acknowledge(message)
    client.close()
    np.save(file, np.array(seen or np.empty((0, 3)), np.int64))

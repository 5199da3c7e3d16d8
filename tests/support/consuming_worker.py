"""A consumer to be killed: it works on a subscription with others, and notes what it was handed and what it said.

`python -m tests.support.consuming_worker ROOT TOPIC SUBSCRIPTION NOTES [TYPE]`. TYPE is that of the subscription, else
`shared`. Each line of the file NOTES is `got` or `ack`, the position, the redelivery count, the payload and the time
(ms); it is written before the consumer says it. Payloads that begin with `bad` fail each time, those with `once` the
first time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.exceptions import Timeout
from pipeline.config.wallclock import wall_ms

_LOOK_MS = 1_000


def main(root: str, topic: str, subscription: str, notes: Path, kind: str = "shared") -> None:
    """Work until somebody kills us."""
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Client(root) as client:
        consumer = client.subscribe(topic, subscription, ConsumerType(kind))
        while True:
            try:
                message = consumer.receive(_LOOK_MS)
            except Timeout:
                continue
            ledger, entry = message.message_id().position
            payload, count = message.data().decode(), message.redelivery_count()
            fails = payload.startswith("bad") or (payload.startswith("once") and count == 0)
            for word in ("got",) if fails else ("got", "ack"):
                os.write(file, f"{word} {ledger}:{entry} {count} {payload} {wall_ms()}\n".encode())
            if fails:
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])

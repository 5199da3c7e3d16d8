"""A worker of part three, as a program would have it: it works on orders, and says what became of each.

Run as a module: the URL of the warehouse, topic, subscription, and a name. It works until it is told to stop.
"""

import sys
import time

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.exceptions import Timeout

POISON, FLAKY = "poison", "flaky"
"""What orders are called that fail each time, and the first time."""
_WORK_S, _LOOK_MS = 0.1, 1_000


def work(url: str, topic: str, subscription: str, name: str) -> None:
    """Take orders and acknowledge them, or say that they failed."""
    with Client(url) as client:
        consumer = client.subscribe(topic, subscription, ConsumerType.Shared, consumer_name=name)
        while True:
            try:
                order = consumer.receive(_LOOK_MS)
            except Timeout:
                continue
            time.sleep(_WORK_S)
            text, count = order.data().decode(), order.redelivery_count()
            if text.startswith(POISON) or (text.startswith(FLAKY) and count == 0):
                consumer.negative_acknowledge(order)
                said = "failed"
            else:
                consumer.acknowledge(order)
                said = "done"
            sys.stdout.write(f"{name}: {text} {said}{f', redelivery {count}' if count else ''}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    work(*sys.argv[1:5])

"""Many subscriptions: what each further one costs when ten, a hundred, a thousand or ten thousand are there.

They are registered one by one, as programs do. Then ingest follows the registry as it does in a batch: who left
meanwhile, who is there, who joins. The baseline is the smallest number of the same run: each figure is also told as a
multiple of that one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.support.machine import describe, resident_bytes
from benchmarks.support.report import tell
from benchmarks.support.usual import usual_machine
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.config.session import local_session
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.warehouse import Warehouse
from pipeline.subscriptions.audience import Subscription as Line
from pipeline.subscriptions.audience import audiences
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.registry import Registry
from schemas import SUBSCRIPTIONS

SIZES, FULL = (10, 100, 1_000), (10, 100, 1_000, 10_000)
TIMED = ("register_ms", "first_batch_ms", "further_batch_ms", "one_more_ms", "read_ms", "audience_ms")
_LOOKS = 5


def timed(call: Callable[[], object]) -> float:
    """How long a call takes, ms."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1_000


class Following:
    """What a batch of ingest does with the registry."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is known yet."""
        self._registry = Registry(spark, warehouse)
        self._seen, self._ledger = self._registry.version(), 0
        self._lives: dict[Name, Incarnation] = {}

    def batch(self) -> None:
        """Follow the registry to where it is."""
        version = self._registry.version()
        if version != self._seen:
            gone = self._registry.gone_between(self._lives, self._seen, version)
            lines = self._registry.at(version)
            joined = {name: Incarnation(1, self._ledger, each.tick_ms) for name, each in lines.items()}
            self._lives = joined | {name: each for name, each in self._lives.items() if name not in gone}
            audiences(lines.values(), self._lives)
        self._seen, self._ledger = version, self._ledger + 1


def grown(following: Following, root: str, begin: int, size: int) -> dict[str, Any]:
    """Register subscriptions one by one until there are so many; then let ingest follow."""

    def register() -> None:
        for number in range(begin, size):
            subscribe(root, Subscription(f"t{number}", f"s{number}"))

    registered = timed(register) / (size - begin)
    first = timed(following.batch)
    further = sorted(timed(following.batch) for _ in range(_LOOKS))[_LOOKS // 2]
    subscribe(root, Subscription("one", f"more{size}"))
    one_more = timed(following.batch)
    read = sorted(timed(lambda: subscriptions(root)) for _ in range(_LOOKS))[_LOOKS // 2]
    files = len(open_table(root, SUBSCRIPTIONS).file_uris())
    entries = len(list(Path(path_of(root, SUBSCRIPTIONS), "_delta_log").glob("*.json")))
    audience_ms, audience_mb = one_by_one(size)
    return {
        "subscriptions": size,
        "register_ms": registered,
        "first_batch_ms": first,
        "further_batch_ms": further,
        "one_more_ms": one_more,
        "read_ms": read,
        "audience_ms": audience_ms,
        "audience_mb": audience_mb,
        "files": files,
        "log_entries": entries,
        "resident_mb": resident_bytes() / 1e6,
    }


def one_by_one(size: int) -> tuple[float, float]:
    """The audience of one topic whose subscriptions joined one after the other: ms, and MB."""
    lines = [Line("t", f"s{number}", 1_000, earliest=False) for number in range(size)]
    lives = {(each.topic, each.name): Incarnation(1, number, each.tick_ms) for number, each in enumerate(lines)}
    held: list[object] = []
    before = resident_bytes()
    took = timed(lambda: held.append(audiences(lines, lives)))
    return took, (resident_bytes() - before) / 1e6


def rows(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """A row for each number of subscriptions, of one warehouse that grows."""
    with tempfile.TemporaryDirectory(prefix="delayline-many-") as root:
        spark = local_session("delayline bench", usual_machine("2g"), root)
        spark.sparkContext.setLogLevel("OFF")
        create_all(root)
        following = Following(spark, Warehouse(root))
        begin, least = 0, dict[str, float]()
        for size in sizes:
            found = grown(following, root, begin, size)
            least = least or {name: max(found[name], 0.01) for name in TIMED}
            yield found | {"by_least": {name: found[name] / least[name] for name in TIMED}}
            begin = size
        spark.stop()


def show(found: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    times = ", ".join(
        f"{name.removesuffix('_ms').replace('_', ' ')} {found[name]:.1f} ms (x{found['by_least'][name]:.1f})"
        for name in TIMED
    )
    rest = f"audience {found['audience_mb']:.1f} MB, {found['files']} files, {found['log_entries']} log entries"
    yield f"{found['subscriptions']:6} subscriptions: {times}; {rest}, {found['resident_mb']:.0f} MB resident"


def main(arguments: list[str] | None = None) -> int:
    """Print machine and figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--full", action="store_true", help=f"up to {FULL[-1]} subscriptions, which takes a quarter of an hour"
    )
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    tell(describe("pyspark", "deltalake", "pyarrow"), rows(FULL if chosen.full else SIZES), show, as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

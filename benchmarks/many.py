"""Many subscriptions: what each further one costs when ten, a hundred, a thousand or ten thousand are there.

They are registered one by one, as programs do. Then ingest follows the registry as it does in a batch: who left
meanwhile, who is there, who joins. The baseline is the smallest number of the same run: each figure is also told as a
multiple of that one.

With `--topics` it is about topics instead: how a consumer of a pattern looks for them, the first time, again, and when
a thousand new ones have come.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.support.machine import describe, resident_bytes
from benchmarks.support.report import tell
from benchmarks.support.usual import usual_machine
from pipeline.client.create import create_all
from pipeline.client.subscribing.patterns import ConsumedTopics
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.config.session import local_session
from pipeline.delta.deltars import append, open_table, path_of
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.segments import MembershipCache
from pipeline.subscriptions.incarnations import Incarnation, Name, audiences, next_lives
from pipeline.subscriptions.incarnations import Subscription as Line
from pipeline.subscriptions.registry import Registry
from schemas import MESSAGES, SUBSCRIPTIONS

SIZES, FULL = (10, 100, 1_000), (10, 100, 1_000, 10_000)
TIMED = ("register_ms", "first_batch_ms", "further_batch_ms", "one_more_ms", "read_ms", "audience_ms")
_LOOKS, _FILES, _NEW = 5, 20, 1_000


def timed(call: Callable[[], object]) -> float:
    """How long a call takes, ms."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1_000


class Following:
    """What a batch of ingest does with the registry."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._registry, self._membership = Registry(warehouse), MembershipCache()
        self._seen, self._ledger = self._registry.version(), 0
        self._lives: Mapping[Name, Incarnation] = {}

    def batch(self) -> None:
        """Follow the registry to where it is."""
        version = self._registry.version()
        gone = self._registry.gone_between(self._lives, self._seen, version)
        members = self._membership.at(self._registry.at(version).subscriptions, self._lives, self._ledger, gone)
        self._lives = next_lives(self._lives, members.joined, members.left)
        self._seen, self._ledger = version, self._ledger + 1


def grown(following: Following, root: str, begin: int, size: int) -> dict[str, Any]:
    """Register subscriptions one by one until there are so many; then let ingest follow."""

    def register() -> None:
        for number in range(begin, size):
            subscribe(root, Subscription(f"t{number}", f"s{number}"))

    used = time.process_time()
    registered = timed(register) / (size - begin)
    used = (time.process_time() - used) * 1_000 / (size - begin)
    first = timed(following.batch)
    further = sorted(timed(following.batch) for _ in range(_LOOKS))[_LOOKS // 2]
    subscribe(root, Subscription("one", f"more{size}"))
    used_more = time.process_time()
    one_more = timed(following.batch)
    used_more = (time.process_time() - used_more) * 1_000
    read = sorted(timed(lambda: subscriptions(root)) for _ in range(_LOOKS))[_LOOKS // 2]
    files = len(open_table(root, SUBSCRIPTIONS).file_uris())
    entries = len(list(Path(path_of(root, SUBSCRIPTIONS), "_delta_log").glob("*.json")))
    audience_ms, audience_mb = one_by_one(size)
    return {
        "subscriptions": size,
        "register_ms": registered,
        "register_cpu_ms": used,
        "first_batch_ms": first,
        "further_batch_ms": further,
        "one_more_ms": one_more,
        "one_more_cpu_ms": used_more,
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
        following = Following(Warehouse(root, spark))
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
    used = f"register {found['register_cpu_ms']:.1f}, one more {found['one_more_cpu_ms']:.1f} ms of a processor"
    yield f"{found['subscriptions']:6} subscriptions: {times}; {used}; {rest}, {found['resident_mb']:.0f} MB resident"


def sent(root: str, begin: int, end: int, ledger: int) -> None:
    """A message to each of some topics, in one commit."""
    count, now = end - begin, pa.scalar(0, pa.timestamp("us", "UTC"))
    columns = {
        "topic": pa.array([f"topic-{number}" for number in range(begin, end)]),
        "ledger_id": pa.repeat(ledger, count),
        "entry_id": pa.array(range(count), pa.int64()),
        "publish_time": pa.repeat(now, count),
        "due_time": pa.repeat(now, count),
        "parked": pa.repeat(False, count),  # noqa: FBT003 - a value
        "batch_id": pa.repeat(ledger, count),
        "payload": pa.repeat(b"x" * 100, count),
    }
    append(root, MESSAGES, pa.table(columns))


def looks(count: int) -> Iterator[dict[str, Any]]:
    """How long looks for topics take: wall and processor time of this process, ms."""
    with tempfile.TemporaryDirectory(prefix="delayline-many-") as root:
        create_all(root)
        for number in range(_FILES):
            sent(root, number * count // _FILES, (number + 1) * count // _FILES, number)
        for described, pattern in (("one in ten", re.compile(r"topic-1\d*")), ("all", re.compile(".*"))):
            consumed, before = ConsumedTopics(root, pattern, "s", None), resident_bytes()
            found = set(consumed.look())
            consumed = ConsumedTopics(root, pattern, "s", None)
            row: dict[str, Any] = {"topics": count, "described": described, "found": len(found)}
            for which in ("first", "again", "new"):
                if which == "new":
                    sent(root, count, count + _NEW, _FILES)
                begun, used = time.perf_counter(), time.process_time()
                consumed.look(found)
                row[f"{which}_ms"] = (time.perf_counter() - begun) * 1_000
                row[f"{which}_cpu_ms"] = (time.process_time() - used) * 1_000
            yield row | {"more_mb": (resident_bytes() - before) / 1e6}


def show_looks(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person."""
    times = ", ".join(
        f"{name} {row[f'{which}_ms']:.1f} ms ({row[f'{which}_cpu_ms']:.1f} ms of a processor)"
        for which, name in (("first", "first look"), ("again", "again"), ("new", f"with {_NEW} new ones"))
    )
    which = f"{row['topics']} topics, {row['described']} described ({row['found']})"
    yield f"{which}: {times}; {row['more_mb']:.0f} MB more"


def main(arguments: list[str] | None = None) -> int:
    """Print machine and figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--full", action="store_true", help=f"up to {FULL[-1]} subscriptions, which takes a quarter of an hour"
    )
    parser.add_argument("--topics", type=int, help="look for so many topics by a pattern instead")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.topics:
        tell(describe("deltalake", "pyarrow"), looks(chosen.topics), show_looks, as_json=chosen.json)
        return 0
    tell(describe("pyspark", "deltalake", "pyarrow"), rows(FULL if chosen.full else SIZES), show, as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Many subscriptions: what each further one costs when ten, a hundred, a thousand or ten thousand are there.

They are registered one by one, as programs do, and ingest then takes batches, as it is and without a JVM. The baseline
is the smallest number of the same run: each figure is also told as a multiple of that one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.support.machine import describe, resident_bytes
from benchmarks.support.report import tell
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.delta.deltars import open_table, path_of
from pipeline.subscriptions.audience import Subscription as Line
from pipeline.subscriptions.audience import audiences
from pipeline.subscriptions.incarnations import Incarnation
from schemas import SUBSCRIPTIONS
from tests.support.stream import message
from tests.support.without_jvm import Stages, no_jvm

SIZES, FULL = (10, 100, 1_000), (10, 100, 1_000, 10_000)
T0, SECOND_MS = 2_000_000_000_000, 1_000
TIMED = ("register_ms", "first_batch_ms", "further_batch_ms", "one_more_ms", "read_ms", "audience_ms")
_LOOKS = 5


def timed(call: Callable[[], object]) -> float:
    """How long a call takes, ms."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1_000


def grown(stages: Stages, begin: int, size: int) -> dict[str, Any]:
    """Register subscriptions one by one until there are so many; then let ingest take batches."""
    root = stages.root

    def batch() -> None:
        stages.instant += SECOND_MS
        stages.ingest(message("m", "t0"))

    def register() -> None:
        for number in range(begin, size):
            subscribe(root, Subscription(f"t{number}", f"s{number}"))

    registered = timed(register) / (size - begin)
    first = timed(batch)
    further = sorted(timed(batch) for _ in range(_LOOKS))[_LOOKS // 2]
    subscribe(root, Subscription("one", f"more{size}"))
    one_more = timed(batch)
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
    with tempfile.TemporaryDirectory(prefix="delayline-many-") as folder, no_jvm():
        stages = Stages(f"{folder}/warehouse")
        stages.instant = T0
        stages.ingest()
        begin, least = 0, dict[str, float]()
        for size in sizes:
            found = grown(stages, begin, size)
            least = least or {name: max(found[name], 0.01) for name in TIMED}
            yield found | {"by_least": {name: found[name] / least[name] for name in TIMED}}
            begin = size


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
    tell(describe("deltalake", "pyarrow"), rows(FULL if chosen.full else SIZES), show, as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

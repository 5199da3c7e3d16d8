"""A virtual month in which subscriptions are made, used, ended and made anew each day: nothing grows with the days.

Ingest, dispatch, settle and maintenance are the real ones, without a JVM; the schedule is a list. DELAYLINE_DAYS and
DELAYLINE_DAILY ask for other numbers of days, and of subscriptions that come and go each day. `pytest -s` prints a
line for each week.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.support.machine import resident_bytes
from pipeline.client.subscribing.lives import lives
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.config.settings import DAY_MS, HOUR_MS, SECOND_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.maintenance.rounds import TableMetrics, maintain
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS, DELIVERIES, TABLES
from tests.support.maintained import vacuum_at_once
from tests.support.stages import Stages
from tests.support.stream import at, message

DAYS, DAILY = int(os.environ.get("DELAYLINE_DAYS", "28")), int(os.environ.get("DELAYLINE_DAILY", "12"))
STANDING, LOOKS, WEEK = 3, 4, 7
UPKEEP = Upkeep(
    retain_ms=DAY_MS,
    retain_deliveries_ms=DAY_MS,
    retain_log_ms=0,
    quiet_ms=0,
    log_ms=0,
    files_ms=0,
    retain_dead_letters_ms=0,
)
_SEEN = "SELECT * FROM d WHERE batch_id > {batch}"
_ACKS = Policies(ack=True, retry_min_ms=12 * HOUR_MS, retry_max_ms=DAY_MS)


@dataclass(frozen=True)
class Sizes:
    """What there is at the end of a week."""

    day: int
    memory: int
    files: int
    entries: int
    rows: int
    waiting: int
    lives: int
    seconds: float

    def __str__(self) -> str:
        """For a person."""
        return (
            f"day {self.day:3}: {self.memory / 1e6:.0f} MB resident, {self.files} files, {self.entries} log entries, "
            f"{self.rows} rows, {self.waiting} runs in the index, {self.lives} lives; {self.seconds:.1f} s a day"
        )


class Month:
    """The stages, and what is done to them each day."""

    def __init__(self, root: str) -> None:
        """Make the warehouse."""
        self.stages, self.begin = Stages(root), (wall_ms() - (DAYS + 10) * DAY_MS) // DAY_MS * DAY_MS
        self.root, self._handed = self.stages.root, 0
        for table in TABLES:
            open_table(root, table).alter.set_table_properties({"delta.checkpointInterval": "10"})

    def day(self, number: int) -> None:
        """Some come for a day, under names of theirs or under those of yesterday."""
        names = [(f"stays{n}", "s") for n in range(STANDING)]
        guests = [(f"again{n}" if n % 2 else f"new{number}-{n}", "s") for n in range(DAILY)]
        for topic, name in guests if number else [*names, *guests]:
            subscribe(self.root, Subscription(topic, name, tick_ms=SECOND_MS, policies=_ACKS))
        for look in range(LOOKS):
            self.stages.instant = self.begin + number * DAY_MS + look * DAY_MS // LOOKS
            self._round(
                [message(f"{number}-{look}-{topic}", topic, self.stages.instant) for topic, _ in [*names, *guests]]
            )
            self._consume()
        for topic, name in guests:
            unsubscribe(self.root, topic, name)
        self.stages.instant += HOUR_MS
        self._round([])

    def maintain(self) -> list[TableMetrics]:
        """A round of maintenance."""
        with ExitStack() as patches:
            patches.enter_context(patch("pipeline.maintenance.rounds.vacuum", vacuum_at_once))
            patches.enter_context(patch("pipeline.maintenance.rounds._REPLAYED_MS", 0))
            return list(maintain(self.stages.warehouse, UPKEEP, wall_ms() + SECOND_MS))

    def sizes(self, day: int, seconds: float) -> Sizes:
        """What there is."""
        files = [each for table in TABLES for each in Path(self.root, table.name).rglob("*") if each.is_file()]
        entries = [each for each in files if each.parent.name == "_delta_log" and each.suffix == ".json"]
        rows = sum(int(query("SELECT COUNT(*) AS n FROM t", t=open_table(self.root, t))[0]["n"]) for t in TABLES)
        waiting, known = self.stages.schedule.waiting, len(lives(self.root))
        return Sizes(day, resident_bytes(), len(files), len(entries), rows, waiting, known, seconds)

    def _round(self, rows: list[dict[str, Any]]) -> None:
        assert self.stages.ingest(*rows)
        self.stages.schedule.step(self.stages.instant)
        while self.stages.has_dispatch:
            assert self.stages.dispatch()
        assert self.stages.settle()

    def _consume(self) -> None:
        """Each delivery is acknowledged, but for one in four, which fails and comes again."""
        rows = query(_SEEN.format(batch=self._handed), d=open_table(self.root, DELIVERIES))
        self._handed = max((row["batch_id"] for row in rows), default=self._handed)
        said = [self._said(row, fails=row["entry_id"] % 4 == 0 and not row["redelivery_count"]) for row in rows]
        if said:
            append(self.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, said))
        assert self.stages.settle()

    def _said(self, row: dict[str, Any], *, fails: bool) -> dict[str, Any]:
        named = {name: row[name] for name in ("topic", "subscription", "life", "ledger_id", "redelivery_count")}
        place = {"first_entry": row["entry_id"], "last_entry": row["entry_id"]}
        return named | place | {"kind": "nack" if fails else "ack", "at": at(self.stages.instant)}


def grown(weeks: list[Sizes]) -> list[str]:
    """What is more in the second half by a quarter, or for memory by 32 MB, than it ever was in the first one.

    Settle puts one file in the place of many of `cursors` about once a week; until then rows are counted that are over.
    """
    half = len(weeks) // 2

    def most(name: str, some: list[Sizes]) -> int:
        return max(int(getattr(each, name)) for each in some)

    names = ("files", "entries", "rows", "waiting", "lives")
    more = [name for name in names if most(name, weeks[half:]) > 1.25 * most(name, weeks[:half])]
    return more + ["memory"] * (most("memory", weeks[half:]) > most("memory", weeks[:half]) + (32 << 20))


def test_a_month_of_subscriptions_that_come_and_go_is_flat(tmp_path: Path) -> None:
    """Lives of those that had gone, lines of the registry and its log stayed for ever."""
    weeks = list[Sizes]()
    month, begun = Month(str(tmp_path / "warehouse")), time.monotonic()
    for day in range(DAYS):
        month.day(day)
        done = month.maintain()
        assert [each.failed for each in done if each.failed] == []
        if (day + 1) % WEEK == 0:
            weeks.append(month.sizes(day + 1, (time.monotonic() - begun) / WEEK))
            begun = time.monotonic()
            print(weeks[-1])
    more = grown(weeks)
    print("flat" if not more else f"grows: {', '.join(more)}")
    assert more == []

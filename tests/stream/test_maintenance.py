"""Maintenance after every step: smaller tables, and nothing else is different, whoever stands still."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.client.create import create_all
from pipeline.client.insight.pending import pending
from pipeline.client.tables.deliveries import Deliveries
from pipeline.maintenance.rounds import TableMetrics
from pipeline.storage.files import Files
from schemas import DELIVERIES, INBOX, MESSAGES, REDELIVERY, REJECTED_DISPATCH, REJECTED_INGEST, SEGMENTS, Table
from tests.support import stages, stream
from tests.support.examined import sound
from tests.support.maintained import GROWING, data_files, live_files, sharply, shorten_logs, sizes
from tests.support.spark import session
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    message,
    payloads,
    restart,
    subscribe,
)
from tests.support.worlds import Play, on_spark

T0 = 1_700_000_000_000
HOUR = 3_600_000


def stand_still(name: str) -> Step:
    """Stop one stage; the others go on."""
    return check(lambda world: world.end_one(name))


def go_on(name: str) -> Step:
    """Start one stage again and let all come to the present."""
    return check(lambda world: world.begin_one(name))


def lose_the_schedule(world: World) -> None:
    """Its checkpoint is gone, and it goes on from the tables."""
    world.lose("schedule")
    world.rebuild("schedule")
    world.begin()


def script(look: Step, long: bool) -> list[Step]:  # noqa: FBT001 - the two tests differ in it
    """Near, parked and refused messages; stages stand still while others go on; all restart; the schedule is rebuilt.

    Somebody looks while one stands still; in the long script after each step.
    """

    def more(*steps: Step) -> list[Step]:
        return [each for step in steps for each in (step, look)] if long else []

    return [
        subscribe("t", "s"),
        subscribe("t", "coarse", tick_ms=60_000),
        append(message("now"), message("refused", after=-1), due("2h", 2), due("50h", 50), due("past", -9, -9)),
        advance(T0),
        *more(advance(T0 + 1_000)),
        subscribe("t", "late"),
        append(due("1h", 1), due("30h", 30)),
        advance(T0 + HOUR),
        *more(advance(T0 + HOUR)),
        stand_still("dispatch"),
        append(due("3h", 3)),
        *more(advance(T0 + 2 * HOUR)),
        append(due("4h", 4)),
        advance(T0 + 4 * HOUR),
        look,
        go_on("dispatch"),
        stand_still("ingest"),
        append(due("5h", 5), due("old", -1, -1)),
        *more(advance(T0 + 5 * HOUR)),
        append(due("6h", 6)),
        advance(T0 + 6 * HOUR),
        look,
        go_on("ingest"),
        *more(stand_still("schedule"), append(due("8h", 8)), advance(T0 + 8 * HOUR), go_on("schedule")),
        restart(),
        *more(advance(T0 + 20 * HOUR)),
        advance(T0 + 40 * HOUR),
        check(lose_the_schedule),
        append(due("last", 50)),
        *more(advance(T0 + 60 * HOUR), advance(T0 + 65 * HOUR)),
        advance(T0 + 70 * HOUR),
    ]


def due(name: str, hours: int, published: int | None = None) -> dict[str, Any]:
    """A message for an hour after `T0`; published at the instant at which it is taken in, when nothing is said."""
    return message(name, deliver_at=T0 + hours * HOUR, published=None if published is None else T0 + published * HOUR)


ORDER = ["past", "now", "1h", "2h", "3h", "4h", "old", "5h", "6h", "30h", "50h", "last"]


def facts(world: World, table: Table) -> list[tuple[str, ...]]:
    """A table's rows in a fixed order."""
    names = [name for name in table.schema.names if name != "batch_id"]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


@dataclass
class Witness:
    """What somebody sees who looks after each step: what is pending, and what has been delivered since."""

    maintained: bool
    backlogs: list[object] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    reader: Deliveries | None = None
    done: list[dict[str, TableMetrics]] = field(default_factory=list)

    def look(self, world: World) -> None:
        """Look, and then maintain when asked to; nothing is wrong then."""
        root = world.warehouse.root
        self.reader = self.reader or Deliveries(root)
        self.received += [each.payload for each in self.reader.take()]
        if self.maintained:
            self.done.append(round_of(world))
        sound(root)
        found = pending(root)
        self.backlogs.append((found.backlogs, found.in_inbox))


def round_of(world: World) -> dict[str, TableMetrics]:
    """A round of maintenance, by the session of the tests."""
    return sharply(world.warehouse.within(session()), 2 * HOUR)


@pytest.fixture(autouse=True)
def _short_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few commits must be enough to see a log cut."""
    made = str(tmp_path / "made")
    create_all(made)
    shorten_logs(made)
    for each in (stream, stages):
        monkeypatch.setattr(each, "empty_warehouse", lambda *_: made)


def waiting(world: World) -> list[int]:
    """When the messages were due (ms) whose releases are there though they went: "past", "now", "1h" and "2h"."""
    due = [round(row["message_due"].timestamp() * 1_000) for row in world.rows(REDELIVERY)]
    return [ms for ms in due if ms < T0 - 2 * HOUR or T0 - HOUR // 2 < ms <= T0 + 2 * HOUR + HOUR // 2]


def test_whoever_stands_still_maintenance_takes_nothing_from_him(play: Play) -> None:
    """Everything comes once, in order, to who was there; what is settled leaves, and files and logs stay few."""
    witness = Witness(maintained=True)
    world = play(script(check(witness.look), long=False))
    # Of what is due at the last instant, the buckets of a coarse tick end later; `late` came after the first messages.
    late = [name for name in ORDER if name not in ("past", "now", "2h", "50h")]
    assert [payloads(world, name) for name in ("s", "coarse", "late")] == [ORDER, ORDER[:-1], late]
    assert world.rows(REJECTED_DISPATCH) == []
    assert [row["reason"] for row in world.rows(REJECTED_INGEST)] == ["negative_delay"]
    assert witness.reader
    assert len([*witness.received, *witness.reader.take()]) == len(world.rows(DELIVERIES))
    assert list(Deliveries(world.warehouse.root).take())
    gone = {"past", "now", "1h", "2h"}
    assert {bytes(row["payload"]).decode() for row in world.rows(MESSAGES)} == {*ORDER} - gone
    deleted = {name: [done[name].rows for done in witness.done] for name in witness.done[0]}
    # While dispatch stands still nothing of its table goes, while ingest does nothing of the inbox.
    # A stage may look again at the batch before its last one, whose rows wait for a round more.
    assert deleted | {"inbox": [5, 0], "messages": [1, 3], "redelivery": [0, 6]} == deleted
    assert sum(row["first_ledger"] is not None for row in world.rows(SEGMENTS)) == 3
    cut = {table.name: sum(done[table.name].entries for done in witness.done) for table in GROWING}
    assert all(cut.values()), cut
    assert len(waiting(world)) == 9 - deleted["redelivery"][1]
    round_of(world)
    assert waiting(world) == [], "they did not wait for ever"


def vacuum_all(world: World) -> None:
    """A user's VACUUM that keeps no hours, on the tables that stages follow: all goes that is not part of them."""
    for table in (INBOX, SEGMENTS, REDELIVERY):
        files, live = Files().folder(world.warehouse.path(table)), live_files(world.warehouse.root, table)
        for file in data_files(files):
            if file.path not in live:
                files.delete_file(file.path)


@pytest.mark.soak
def test_a_stage_that_stood_still_finds_its_files_whatever_a_user_vacuums() -> None:
    """A round merges small files; the stage reads those that were there before, by the log, and they were gone."""

    def maintained(world: World) -> None:
        round_of(world)
        vacuum_all(world)

    steps = [
        subscribe("t", "s"),
        append(due("1h", 1)),
        advance(T0),
        stand_still("dispatch"),
        stand_still("schedule"),
        *[append(due("2h", 2)), advance(T0 + HOUR), append(due("3h", 3)), advance(T0 + HOUR + 1_000)],
        check(maintained),
        go_on("schedule"),
        *[append(due("4h", 4)), advance(T0 + 2 * HOUR)],
        stand_still("ingest"),
        *[append(due("5h", 5)), advance(T0 + 3 * HOUR), append(due("6h", 6)), advance(T0 + 4 * HOUR)],
        check(maintained),
        *[go_on("ingest"), go_on("dispatch")],
        advance(T0 + 6 * HOUR),
        delivered("1h", "2h", "3h", "4h", "5h", "6h"),
    ]
    world = on_spark(steps)
    assert world.rows(REJECTED_DISPATCH) == []


@pytest.mark.soak
def test_a_run_with_maintenance_at_every_step_is_a_run_without() -> None:
    """What is delivered and what is pending is the same, row for row, at every step."""
    undisturbed, witness = Witness(maintained=False), Witness(maintained=True)
    plain = on_spark(script(check(undisturbed.look), long=True))
    world = on_spark(script(check(witness.look), long=True))
    for table in (DELIVERIES, REJECTED_INGEST, REJECTED_DISPATCH):
        assert facts(world, table) == facts(plain, table), table.name
    assert witness.received == undisturbed.received
    assert witness.backlogs == undisturbed.backlogs
    # A file of the inbox goes as a whole, and each round merges it with younger ones until it is large.
    rows = {t.name: (len(world.rows(t)), len(plain.rows(t))) for t in (MESSAGES, SEGMENTS, REDELIVERY)}
    assert {name: few < many for name, (few, many) in rows.items()} == dict.fromkeys(rows, True), rows
    small, large = sizes(world.warehouse.root), sizes(plain.warehouse.root)
    fewer = {name: all(a < b for a, b in zip(small[name], large[name], strict=True)) for name in small}
    assert fewer == dict.fromkeys(fewer, True), (small, large)

"""Subscriptions that left long ago are forgotten, and no life of theirs gets its number again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the registry needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from hypothesis import given
from hypothesis import strategies as st

from pipeline.client.commanding.commands import cancel
from pipeline.client.subscribing.lives import lives
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions, unsubscribe
from pipeline.config.settings import DAY_MS, HOUR_MS
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.maintenance.cutlogs import cut_log
from pipeline.maintenance.exemptions import COLUMNS, Change, Forgotten, RetentionLimits, forget_lines, forgotten
from pipeline.maintenance.retention import delete, going
from pipeline.subscriptions import markers
from pipeline.subscriptions.incarnations import (
    FORGOTTEN,
    Incarnation,
    Joined,
    Name,
    alive,
    lives_of,
    next_lives,
    next_number,
)
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark
from schemas import CONSUMER_EVENTS, LEFT, MESSAGES, SEGMENTS, SUBSCRIPTIONS
from tests.support.stages import Stages
from tests.support.stream import at, message

T0 = 2_000_000_000_000
NAMES = [("t", "a"), ("t", "b"), ("u", "a")]
LONG_AGO = SettledMark(T0 + 9 * DAY_MS, 1 << 40, 1 << 40)


def lives_by(changes: list[Change]) -> Mapping[Name, Incarnation]:
    """What readers make of marker rows."""
    rows = sorted(changes, key=lambda each: each.place)
    return lives_of((each.name, Joined(each.place[1], 1, life=each.life)) for each in rows)


def without(changes: list[Change], gone: Forgotten) -> list[Change]:
    """The rows that stay."""
    columns = zip(*((e.name[0], [{"name": e.name[1]}], *e.place) for e in changes), strict=True)
    listed = dict(zip(COLUMNS, map(list, columns), strict=True)) if changes else {name: [] for name in COLUMNS}
    goes = gone.among(pa.table(listed | {"first_ledger": pa.array(listed["first_ledger"], pa.int64())}))
    return [each for each, flag in zip(changes, goes.to_pylist(), strict=True) if not flag]


@given(st.lists(st.one_of(st.sampled_from(NAMES), st.tuples(st.just("forget"), st.integers(0, 40)))), st.booleans())
def test_a_number_of_a_life_is_never_given_again(
    steps: list[Any],
    anew: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whoever comes and goes, whatever is forgotten in between, and whether ingest begins anew or goes on."""
    changes, seen = list[Change](), set[tuple[Name, int]]()
    known: Mapping[Name, Incarnation] = {}
    for marker, step in enumerate(steps):
        if step[0] == "forget":
            before = alive(lives_by(changes))
            changes = without(changes, Forgotten.of(changes, step[1], marker))
            assert alive(lives_by(changes)) == before
            known = lives_by(changes) if anew else known
            continue
        there = step in alive(known)
        number = known[step].number if there else next_number(known, step)
        assert there or (step, number) not in seen
        seen.add((step, number))
        changes.append(Change(step, (marker, LEFT if there else marker), number, marker))
        joined = {} if there else {step: Joined(marker, 1, life=number)}
        known = next_lives(known, joined, [step] if there else [])
        assert alive(lives_by(changes)) == alive(known)
    rest = without(changes, Forgotten.of(changes, 1 << 40, 1 << 40))
    assert len(rest) <= len(alive(known)) + 1


def test_what_is_not_old_is_not_forgotten() -> None:
    """A stage may be behind; a row of an older version does not say its number."""
    a, b, c = NAMES
    changes = [Change(a, (1, 0), 1, 1), Change(a, (2, LEFT), 1, 5), Change(b, (1, 0), 0, 1), Change(b, (2, LEFT), 0, 2)]
    assert Forgotten.of(changes, 4, 9).before == {a: (1, 0)}
    assert Forgotten.of(changes, 5, 1).before == {a: (1, 0)}
    assert Forgotten.of(changes, 5, 2) == Forgotten({a: (2, 0)}, frozenset([a]), (a, (2, LEFT)))
    later = [*changes, Change(c, (3, 0), 7, 6), Change(c, (4, LEFT), 7, 6), Change(a, (4, 9), 2, 8)]
    assert Forgotten.of(later, 6, 9).names == {c}
    assert lives_by(without(later, Forgotten.of(later, 8, 9))) == {
        a: Incarnation(2, 9, 1), b: Incarnation(1, None, 1), FORGOTTEN: Incarnation(7, None, 0)
    }  # fmt: skip


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A new warehouse."""
    return Stages(str(tmp_path / "warehouse"))


def take(stages: Stages, *rows: dict[str, Any]) -> None:
    """An hour later all stages do what there is to do."""
    stages.instant = (stages.instant or T0) + HOUR_MS
    assert stages.ingest(*rows)
    stages.schedule.step(stages.instant)
    assert stages.dispatch()
    assert stages.settle()


def forget(stages: Stages, mark: SettledMark = LONG_AGO) -> int:
    """What maintenance forgets of the registry and of `segments`; give of how many names."""
    gone = forgotten(stages.warehouse, mark)
    forget_lines(stages.warehouse, gone.lines)
    (rows,) = (each for each in going(mark, None, RetentionLimits(), 0, gone) if each.table is SEGMENTS)
    delete(stages.warehouse, rows)
    return len(gone.names)


def lines(stages: Stages) -> int:
    """How many lines the registry has."""
    return int(query("SELECT count(*) AS n FROM r", r=open_table(stages.root, SUBSCRIPTIONS))[0]["n"])


@pytest.mark.parametrize("restarts", [False, True])
def test_who_comes_back_after_being_forgotten_begins_a_life_of_its_own(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """Its names stayed in the registry, in `segments` and in the memory of each stage for ever."""
    monkeypatch.setattr(markers, "_FEW_LIVES", 1)
    subscribe(stages.root, Subscription("t", "stays", policies=Policies(ack=True)))
    for name in ("s", "s", "more", "s"):
        subscribe(stages.root, Subscription("t", name, policies=Policies(ack=True)))
        take(stages, message(f"for {name}", "t"))
        unsubscribe(stages.root, "t", name)
        take(stages)
    assert lives(stages.root)["t", "s"] == Incarnation(3, None, 1_000)
    assert forget(stages) == 2
    assert (set(lives(stages.root)), lines(stages)) == ({("t", "stays"), FORGOTTEN}, 2)
    if restarts:
        for stage in ("ingest", "dispatch", "settle"):
            stages.restart(stage)
    for name in ("s", "new"):
        subscribe(stages.root, Subscription("t", name, policies=Policies(ack=True)))
    take(stages, message("again", "t"))
    numbers = {name: life.number for (_, name), life in alive(lives(stages.root)).items()}
    # Who goes on knows that there was nobody of that name.
    assert numbers == {"stays": 1, "s": 4, "new": 4 if restarts else 1}
    assert [each.name for each in subscriptions(stages.root)] == ["new", "s", "stays"]
    held = stages._body("ingest")._memory.lives
    assert len(held) <= 5
    forget(stages)
    assert next_number(lives(stages.root), ("t", "other")) == 4


def test_nobody_is_forgotten_before_settle_has_seen_it_leave(stages: Stages) -> None:
    """It asks who lived at the marker of its last batch, when it starts again."""
    subscribe(stages.root, Subscription("t", "stays", policies=Policies(ack=True)))
    subscribe(stages.root, Subscription("t", "s", policies=Policies(ack=True)))
    take(stages, message("m", "t"))
    unsubscribe(stages.root, "t", "s")
    stages.instant += HOUR_MS
    assert stages.ingest()
    assert forget(stages) == 0
    take(stages)
    assert forget(stages) == 1


def test_who_came_and_left_between_two_looks_of_ingest_is_forgotten(stages: Stages) -> None:
    """No marker row tells of it, so its line stayed for ever; who is there, or has not been looked at yet, stays."""
    for name in ("unnoticed", "back", "stays", "earlier"):
        subscribe(stages.root, Subscription("t", name))
        if name != "stays":
            unsubscribe(stages.root, "t", name)
    take(stages, message("m", "t"))
    for name in ("back", "late"):
        subscribe(stages.root, Subscription("t", name))
    unsubscribe(stages.root, "t", "late")
    forget(stages, SettledMark())
    assert [each.name for each in subscriptions(stages.root)] == ["back", "stays"]
    assert lines(stages) == 3
    take(stages, message("n", "t"))
    forget(stages, SettledMark())
    assert lines(stages) == 2
    subscribe(stages.root, Subscription("t", "unnoticed"))
    take(stages, message("o", "t"))
    assert {name: life.number for (_, name), life in alive(lives(stages.root)).items()} == dict.fromkeys(
        ("back", "stays", "unnoticed"), 1
    )


def test_an_active_line_keeps_its_history_though_no_marker_tells_of_it(stages: Stages) -> None:
    """Nobody can join by it until somebody has mended it. Its history went as if it had left."""
    subscribe(stages.root, Subscription("t", "s", policies=Policies(ack=True)))
    open_table(stages.root, SUBSCRIPTIONS).update(updates={"tick_ms": "0"}, predicate="active")
    take(stages, message("m", "t"))
    assert lines(stages) == 2
    forget(stages, SettledMark())
    assert lines(stages) == 2


def begins(stages: Stages) -> int:
    """The first entry of the log of the registry, once maintenance has cut it."""
    cut_log(stages.warehouse, SUBSCRIPTIONS, wall_ms() + 1_000)
    return min(int(each.stem) for each in Path(stages.root, SUBSCRIPTIONS.name, "_delta_log").glob("*.json"))


def test_the_log_of_the_registry_is_cut_up_to_the_version_that_stages_follow(stages: Stages) -> None:
    """It had an entry for each registration there ever was, and each further one lists all of them."""
    open_table(stages.root, SUBSCRIPTIONS).alter.set_table_properties({"delta.checkpointInterval": "2"})
    assert begins(stages) == 0
    subscribe(stages.root, Subscription("t", "s", policies=Policies(ack=True)))
    take(stages, message("m", "t"))
    followed = open_table(stages.root, SUBSCRIPTIONS).version()
    for number in range(5):
        subscribe(stages.root, Subscription("t", f"s{number}"))
    unsubscribe(stages.root, "t", "s")
    assert begins(stages) <= followed
    take(stages)
    # From here on settle follows nothing.
    for number in range(5):
        unsubscribe(stages.root, "t", f"s{number}")
    take(stages)
    assert begins(stages) > followed + 6
    for stage in ("ingest", "dispatch", "settle"):
        stages.restart(stage)
    subscribe(stages.root, Subscription("t", "s", policies=Policies(ack=True)))
    take(stages, message("again", "t"))
    assert lives(stages.root)["t", "s"].number == 2


def test_a_batch_that_only_refuses_is_repeated_though_its_version_of_the_registry_is_gone(stages: Stages) -> None:
    """Dispatch died when it had said all that there was to say, and before its checkpoint knew."""
    open_table(stages.root, SUBSCRIPTIONS).alter.set_table_properties({"delta.checkpointInterval": "2"})
    subscribe(stages.root, Subscription("t", "s"))
    take(stages, message("m", "t", deliver_at=T0 + 2 * HOUR_MS))
    assert cancel(stages.root, "t", "s", where="true").command_id
    stages.instant = T0 + 3 * HOUR_MS
    assert stages.ingest()
    stages.schedule.step(stages.instant)
    stages.die_after("dispatch.rejected_dispatch")
    assert not stages.dispatch()
    followed = open_table(stages.root, SUBSCRIPTIONS).version()
    for number in range(5):
        subscribe(stages.root, Subscription("t", f"s{number}"))
    assert stages.ingest()
    assert begins(stages) > followed
    assert stages.dispatch()
    take(stages, message("again", "t"))


@pytest.mark.parametrize("earlier", [False, True])
def test_a_batch_of_settle_is_repeated_though_its_version_of_the_registry_is_gone(
    stages: Stages, *, earlier: bool
) -> None:
    """Settle died in the first batch after a time in which it followed nothing, and nobody acknowledges any more."""
    open_table(stages.root, SUBSCRIPTIONS).alter.set_table_properties({"delta.checkpointInterval": "2"})
    if earlier:
        subscribe(stages.root, Subscription("t", "s", policies=Policies(ack=True)))
        take(stages, message("m", "t"))
        unsubscribe(stages.root, "t", "s")
        take(stages)
    subscribe(stages.root, Subscription("t", "s", policies=Policies(ack=True)))
    stages.instant = (stages.instant or T0) + HOUR_MS
    assert stages.ingest(message("n", "t"))
    stages.instant += HOUR_MS
    stages.schedule.step(stages.instant)
    assert stages.dispatch()
    (row,) = (row for row in open_table(stages.root, MESSAGES).to_pyarrow_table().to_pylist() if row["payload"] == b"n")
    place = {"ledger_id": row["ledger_id"], "first_entry": row["entry_id"], "last_entry": row["entry_id"]}
    said = {"topic": "t", "subscription": "s", "life": 1 + earlier, "kind": "nack", "cause": "nack"}
    said |= {"at": at(stages.instant), "redelivery_count": 0, **place}
    append(stages.root, CONSUMER_EVENTS, rows_of(CONSUMER_EVENTS, [said]))
    stages.die_after("settle.noted")
    assert not stages.settle()
    followed = open_table(stages.root, SUBSCRIPTIONS).version()
    for number in range(5):
        subscribe(stages.root, Subscription("t", f"s{number}"))
    unsubscribe(stages.root, "t", "s")
    assert stages.ingest()
    assert begins(stages) <= followed
    assert stages.settle()
    take(stages)
    assert begins(stages) > followed

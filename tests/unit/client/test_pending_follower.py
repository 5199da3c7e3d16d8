"""What is pending, followed: where it has to be counted anew, or looked at again."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from threading import Event

import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import DeltaTable

from pipeline.client.choices import ConsumerType
from pipeline.client.insight.pending import pending
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.subscribing.lines import registered_in
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.opening import table_at
from pipeline.doctor.examine import Report
from pipeline.insight.overview import OverviewFollower
from pipeline.subscriptions.lines import Registered
from pipeline.testing.warehouse import warehouse
from schemas import DELIVERIES, MESSAGES
from tests.support.client import delivery_row, message_row, new_warehouse, noticed, put

NOON = 3_999_960_000_000


def filled(root: str, count: int) -> None:
    """So many messages wait for a subscription, a second apart."""
    subscribe(root, Subscription("t", "s", start="earliest"))
    put(root, MESSAGES, *(message_row(1, entry, NOON + 1_000 * entry) for entry in range(count)))
    noticed(root, "s", 0)


def test_what_is_added_and_delivered_is_followed_without_a_recount(root: str) -> None:
    """Also when files were merged, and the first minute is the same one."""
    filled(root, 3)
    followed = PendingFollower(root)
    for step in range(4):
        assert followed.look().backlogs == pending(root).backlogs
        match step:
            case 0:
                put(root, MESSAGES, *(message_row(2, entry, NOON - 90_000 * entry) for entry in range(3)))
            case 1:
                put(root, DELIVERIES, delivery_row(message_row(1, 0, NOON)) | {"life": 0})
            case 2:
                DeltaTable(path_of(root, MESSAGES)).optimize.compact()
    assert followed.recounts == 1
    (backlog,) = followed.look().backlogs
    assert list(backlog.minutes) == sorted(backlog.minutes)


def test_another_warehouse_at_the_same_place_is_counted_anew(root: str) -> None:
    """Somebody deleted it, and made one that has fewer messages and the same subscriptions."""
    filled(root, 7)
    followed = PendingFollower(root)
    assert followed.look().backlogs[0].count == 7
    shutil.rmtree(root)
    with pytest.raises(NoWarehouse):
        followed.look()
    new_warehouse(root)
    filled(root, 3)
    assert followed.look().backlogs == pending(root).backlogs


def test_rows_that_somebody_takes_out_are_counted_anew(root: str) -> None:
    """Nobody can tell from the log which they were."""
    filled(root, 4)
    put(root, DELIVERIES, delivery_row(message_row(1, 0, NOON)) | {"life": 0})
    followed = PendingFollower(root)
    followed.look()
    DeltaTable(path_of(root, DELIVERIES)).delete()
    assert followed.look().backlogs == pending(root).backlogs
    assert followed.recounts == 2


def test_the_next_due_time_is_looked_at_again_when_what_a_command_moved_has_come() -> None:
    """It was the first of its minute, and is no change of what was counted without it."""
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    with warehouse(noon) as world:
        client = world.client()
        client.subscribe("t", "s", ConsumerType.Shared, tick_ms=1)
        producer = client.create_producer("t")
        for key, after in (("moved", 3_600), ("other", 50)):
            producer.send(b"", partition_key=key, deliver_after=timedelta(seconds=after))
        world.run_until_idle()
        client.reschedule("t", key="moved", to=noon + timedelta(seconds=5))
        followed = PendingFollower(world.root)
        for passed, due in ((0, 5), (10, 50)):
            world.advance(seconds=passed)
            assert followed.look().backlogs == pending(world.root).backlogs
            assert followed.look().backlogs[0].next_due == int(noon.timestamp() + due) * 1_000


def test_the_registry_is_read_when_it_has_changed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for a look, whoever needs it: with thousands of subscriptions that is most of the time of a look."""
    filled(root, 1)
    reads = list[int]()

    def counted(registry: DeltaTable, whose: str = "TRUE") -> Registered:
        reads.append(registry.version())
        return registered_in(registry, whose)

    for module in ("registryview", "subscriptions"):
        monkeypatch.setattr(f"pipeline.client.subscribing.{module}.registered_in", counted)
    follower = OverviewFollower(root)
    monkeypatch.setattr("pipeline.insight.overview.examine", lambda *_: Report((), {}))
    assert [each.line.name for each in follower.look(NOON).standings] == ["s"]
    follower.look(NOON)
    assert len(reads) == 1
    monkeypatch.undo()
    set_policy(root, "t", "s", paused=True)
    assert follower.look(NOON).pending.backlogs[0].paused
    subscribe(root, Subscription("t", "other"))
    assert [each.line.name for each in follower.look(NOON).standings] == ["other", "s"]


def test_a_doctor_who_takes_long_looks_less_often(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the thirtieth part of the time is hers, and she looks each 15 s at most."""
    filled(root, 1)
    clock, took, looks = [0.0], [0.1], list[float]()

    def slow(*_: object) -> Report:
        looks.append(clock[0])
        clock[0] += took[0]
        return Report((), {})

    monkeypatch.setattr("pipeline.insight.overview.examine", slow)
    monkeypatch.setattr("pipeline.insight.overview.time.monotonic", lambda: clock[0])
    follower = OverviewFollower(root)
    for _ in range(40):
        follower.look(NOON)
        clock[0] += 3
        took[0] = 2.0
    assert [round(later - one) for one, later in pairwise(looks)] == [15, 65]


def test_a_page_does_not_wait_for_a_doctor_who_takes_long(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is shown at once, exactly, and what she says when she has ended; she is asked once meanwhile."""
    filled(root, 2)
    ended, begun = Event(), list[int]()

    def slow(_: str, now_ms: int) -> Report:
        begun.append(now_ms)
        assert ended.wait(60)
        return Report((), {"inbox": 7})

    monkeypatch.setattr("pipeline.insight.overview.examine", slow)
    follower = OverviewFollower(root, 0.01)
    for _ in range(2):
        seen = follower.look(NOON)
        assert (seen.found, seen.figures.count) == (None, 2)
    ended.set()
    while (seen := follower.look(NOON)).found is None:
        pass
    assert (seen.found.versions, len(begun)) == ({"inbox": 7}, 1)


def test_what_stops_the_doctor_is_told_to_who_looks(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when she stopped behind the look that asked for her. The next look asks her again."""
    filled(root, 1)
    looks = list[object]()

    def examined(*look: object) -> Report:
        looks.append(look)
        if len(looks) == 1:
            raise NoWarehouse(root, "inbox")
        return Report((), {})

    monkeypatch.setattr("pipeline.insight.overview.examine", examined)
    follower = OverviewFollower(root)
    with pytest.raises(NoWarehouse):
        follower.look(NOON)
    assert follower.look(NOON).found == Report((), {})


def test_a_look_opens_the_tables_that_have_changed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and none when nothing has: to read a log anew is most of the time of a look beside a job."""
    filled(root, 3)
    opened = list[str]()

    def counted(folder: str, version: int | None = None) -> DeltaTable:
        opened.append(folder.rpartition("/")[2])
        return table_at(folder, version)

    monkeypatch.setattr("pipeline.delta.deltars.table_at", counted)
    monkeypatch.setattr("pipeline.insight.overview.examine", lambda *_: Report((), {}))
    follower = OverviewFollower(root)
    follower.look(NOON)
    assert len(opened) == len(set(opened))
    opened.clear()
    follower.look(NOON)
    assert opened == []
    put(root, DELIVERIES, delivery_row(message_row(1, 0, NOON)) | {"life": 0})
    opened.clear()
    assert follower.look(NOON).pending.backlogs == pending(root).backlogs
    assert [each for each in opened if each == DELIVERIES.name] == [DELIVERIES.name] * 2, "by the look, and by pending"
    shutil.rmtree(root)
    with pytest.raises(NoWarehouse):
        follower.look(NOON)
    new_warehouse(root)
    filled(root, 2)
    put(root, DELIVERIES, delivery_row(message_row(1, 0, NOON)) | {"life": 0})
    assert follower.look(NOON).pending.backlogs == pending(root).backlogs

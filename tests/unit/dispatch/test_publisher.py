"""Prepared parts become visible when they are due, in their order, each once, whoever dies when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pytest

from pipeline.config.errors import PreparedFileGone
from pipeline.config.options import Delivered, StageListener
from pipeline.config.timeline import Timeline
from pipeline.delta.logs.entries import Commit
from pipeline.delta.writing.datafiles import DataFile
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.prepared import Part, Prepared, PreparedStore, Visible
from pipeline.dispatch.publisher import Publisher
from state.units import Ms

OWNER = "checkpoint"


class Died(Exception):
    """The process is gone."""


@dataclass
class Table:
    """The log of a table that outlives processes: the commits, the files of each, and rows put from the driver."""

    commits: list[tuple[Commit, list[str]]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last(self) -> Commit | None:
        """The newest commit."""
        return self.commits[-1][0] if self.commits else None

    @property
    def shown(self) -> list[str]:
        """All files, in the order in which they became visible."""
        return [path for _, files in self.commits for path in files]

    def found(self, owner: str, batch: int) -> Commit | None:
        """As `Sink.found`."""
        return self.last if self.last is not None and (self.last.owner, self.last.batch) >= (owner, batch) else None

    def since(self, version: int) -> list[tuple[int, Commit]]:
        """As `Sink.since`; the first commit is version 0."""
        return [(number, commit) for number, (commit, _) in enumerate(self.commits) if number > version]

    def commit(self, files: Iterable[DataFile], owner: str, batch: int, note: Mapping[str, Any]) -> int:
        """As `Sink.commit`."""
        self.commits.append((Commit("dispatch", owner, batch, note), [file.path for file in files]))
        return len(self.commits) - 1

    def put(self, rows: pa.Table, owner: str, batch: int, note: Mapping[str, Any]) -> None:
        """As `Sink.put`."""
        self.rows += rows.to_pylist()
        self.commit([], owner, batch, note)


@dataclass
class Notes:
    """A shelf that outlives processes."""

    held: dict[int, str] = field(default_factory=dict)
    gone: bool = False

    def put(self, prepared: Prepared) -> None:
        """As `PreparedStore.put`."""
        self.held[prepared.parts[0].number] = prepared.dumps()

    def drop(self, prepared: Prepared) -> None:
        """As `PreparedStore.drop`."""
        self.held.pop(prepared.parts[0].number)

    def check(self, prepared: Prepared, part: Part) -> None:
        """As `PreparedStore.check`."""
        if self.gone:
            raise PreparedFileGone(prepared.batch, prepared.source, part.files[0].path)

    def all(self) -> list[Prepared]:
        """As `PreparedStore.all`."""
        return [Prepared.loads(text) for _, text in sorted(self.held.items())]


@dataclass
class Disk:
    """What a process finds when it starts, and the time."""

    deliveries: Table = field(default_factory=Table)
    publications: Table = field(default_factory=Table)
    shelf: Notes = field(default_factory=Notes)
    now: int = 0
    live: bool = False
    fatal: str | None = None

    def start(self) -> Publisher:
        """Another process."""

        @dataclass(frozen=True)
        class At(Timeline):
            def now(_self, instant: Ms) -> Ms:  # noqa: N805, ARG002 - the disk is self
                return Ms(self.now)

        sinks = cast("Sink", self.deliveries), cast("Sink", self.publications)
        return Publisher(cast("PreparedStore", self.shelf), *sinks, At(live=self.live), self.observe)

    def observe(self, step: str, _batch: int) -> None:
        """Die after a step, when the test says so."""
        if step == self.fatal:
            self.fatal = None
            raise Died(step)


def batch(number: int, *dues: int) -> Prepared:
    """A batch with a part for each time at which one is due; its file says both."""
    parts = (Part(0, due - 1, due, (DataFile(f"{number}@{due}", 1, 0, 2, "{}"),)) for due in dues)
    return Prepared(OWNER, number, Ms(max(dues)), (number, 0), tuple(parts))


def test_a_part_is_visible_when_its_last_bucket_has_come_and_not_before() -> None:
    """Never early is the promise; a millisecond before is early."""
    disk = Disk()
    publisher = disk.start()
    publisher.take(batch(1, 10, 20))
    seen = []
    for now in (9, 10, 19, 20):
        disk.now = now
        publisher.publish_due()
        seen.append(list(disk.deliveries.shown))
    assert seen == [[], ["1@10"], ["1@10"], ["1@10", "1@20"]]


def test_who_watches_is_told_of_each_part_when_it_is_visible() -> None:
    """Lateness and rates of a run come from here."""

    @dataclass
    class Recorder(StageListener):
        calls: list[tuple[object, ...]] = field(default_factory=list)

        def took(self, stage: str, rows: int) -> None:
            raise AssertionError((stage, rows))

        def routed(self, stage: str, way: str) -> None:
            raise AssertionError((stage, way))

        def published(self, *figures: object) -> None:
            self.calls.append((*figures, len(disk.deliveries.shown)))

    disk, recorder = Disk(), Recorder()
    publisher = disk.start()
    publisher.watch = recorder
    first, second = [Delivered("t", "a", 2, 9, 10)], [Delivered("t", "a", 1, 19, 19), Delivered("t", "b", 1, 20, 20)]
    publisher.take(batch(1, 10, 20), shares=[first, second])
    for now in (9, 15, 30):
        disk.now = now
        publisher.publish_due()
    assert recorder.calls == [(2, 9, 10, 15, first, 1), (2, 19, 20, 30, second, 2)]


def test_another_process_knows_no_shares_of_what_was_prepared_before_it() -> None:
    """They are on no shelf, so that its notes stay small; the figures of the whole part are."""
    parts = list[tuple[object, ...]]()

    class Recorder(StageListener):
        def published(self, *figures: object) -> None:
            parts.append(figures)

    disk = Disk()
    disk.start().take(batch(1, 10), shares=[[Delivered("t", "a", 2, 9, 10)]])
    disk.now, publisher = 30, disk.start()
    publisher.watch = Recorder()
    publisher.publish_due()
    assert parts == [(2, 9, 10, 30, ())]


def test_no_version_names_a_file_that_is_gone() -> None:
    """Readers of the table would fail at it, for ever; the note stays, so that a start can prepare it again."""
    disk = Disk(now=100)
    publisher = disk.start()
    publisher.take(batch(1, 10))
    disk.shelf.gone = True
    with pytest.raises(PreparedFileGone) as raised:
        publisher.publish_due()
    assert raised.value.path == "1@10"
    assert disk.deliveries.commits == []
    assert len(disk.shelf.held) == 1


def test_what_comes_late_does_not_wait_for_batches_before_it() -> None:
    """A short delay is prepared after longer ones whose time has not come."""
    disk = Disk()
    publisher = disk.start()
    publisher.take(batch(1, 10, 50))
    publisher.take(batch(2, 20, 60))
    disk.now = 30
    publisher.publish_due()
    assert disk.deliveries.shown == ["1@10", "2@20"]
    disk.now = 70
    publisher.publish_due()
    assert disk.deliveries.shown == ["1@10", "2@20", "1@50", "2@60"]
    assert disk.shelf.held == {}


def test_parts_that_are_due_together_are_one_commit_in_order_of_time() -> None:
    """After a pause the backlog comes at once, the earliest first."""
    disk = Disk(now=100)
    publisher = disk.start()
    publisher.take(batch(1, 10, 50))
    publisher.take(batch(2, 20))
    publisher.publish_due()
    assert [files for _, files in disk.deliveries.commits] == [["1@10", "2@20", "1@50"]]


@pytest.mark.parametrize("fatal", ["dispatch.deliveries", "dispatch.publications"])
def test_a_process_that_dies_shows_nothing_twice_and_accounts_for_all(fatal: str) -> None:
    """It dies right after each commit, in the middle of a backlog; the next one goes on."""
    disk = Disk(fatal=fatal)
    publisher = disk.start()
    publisher.take(batch(1, 10, 40))
    publisher.take(batch(2, 20, 30))
    disk.now = 25
    with pytest.raises(Died):
        publisher.publish_due()
    publisher = disk.start()
    assert publisher.knows(OWNER, 1)
    assert publisher.knows(OWNER, 2)
    disk.now = 50
    publisher.publish_due()
    assert disk.deliveries.shown == ["1@10", "2@20", "2@30", "1@40"]
    rows = [
        (row["batch_id"], row["count"], round(row["last_due"].timestamp() * 1_000)) for row in disk.publications.rows
    ]
    assert rows == [(1, 2, 10), (2, 2, 20), (2, 2, 30), (1, 2, 40)]
    assert disk.shelf.held == {}


@pytest.mark.parametrize(("live", "started"), [(True, 9_000), (False, None)])
def test_it_is_noted_when_the_process_was_started_that_makes_something_visible(*, live: bool, started: int) -> None:
    """Whoever asks why it was late learns that nobody ran when it was due. In a replay nobody started late."""
    disk = Disk(live=live, fatal="dispatch.deliveries")
    publisher = disk.start()
    publisher.take(batch(1, 10))
    disk.now = 20
    with pytest.raises(Died):
        publisher.publish_due()
    disk.now = 9_000
    publisher = disk.start()
    publisher.take(batch(2, 9_500))
    disk.now = 9_600
    publisher.publish_due()
    found = [
        row["job_started_at"] and round(row["job_started_at"].timestamp() * 1_000) for row in disk.publications.rows
    ]
    assert found == [None, started], "of what another process has made visible nobody knows it any more"


def test_a_note_that_outlived_its_parts_is_dropped() -> None:
    """The process died between the commit and the shelf."""
    disk = Disk(now=50)
    publisher = disk.start()
    publisher.take(batch(1, 10))
    held = dict(disk.shelf.held)
    publisher.publish_due()
    disk.shelf.held = held
    publisher = disk.start()
    publisher.publish_due()
    assert (disk.deliveries.shown, disk.shelf.held) == (["1@10"], {})


def test_numbers_go_on_after_a_restart_and_the_source_is_the_furthest() -> None:
    """A number that comes twice would hide a part; the source is where a new checkpoint begins."""
    disk = Disk(now=10)
    publisher = disk.start()
    publisher.take(batch(1, 10))
    publisher.publish_due()
    publisher.take(batch(2, 90))
    publisher = disk.start()
    publisher.take(replace(batch(3, 20), owner="next"))
    disk.now = 30
    publisher.publish_due()
    assert (disk.deliveries.last or Commit("", "", 0)).note["source"] == (3, 0)
    publisher = disk.start()
    disk.now = 100
    publisher.publish_due()
    assert disk.deliveries.shown == ["1@10", "3@20", "2@90"]
    assert (disk.deliveries.last or Commit("", "", 0)).note["source"] == (3, 0)


@pytest.mark.parametrize(
    ("noted", "lost"),
    [([3, 6, 7], set()), ([6, 7], {3}), ([3, 7], {6}), ([3, 6, 9], {7, 8}), ([], {3})],
    ids=str,
)
def test_a_note_that_is_gone_leaves_a_gap(noted: list[int], lost: set[int]) -> None:
    """Parts 1, 2, 4 and 5 are visible; of those that are not visible each has to be noted."""
    assert Visible(top=5, below=frozenset({3})).lost(noted) == lost


def test_a_batch_that_nobody_prepared_is_not_known() -> None:
    """It has to be written."""
    assert not Disk().start().knows(OWNER, 0)


def test_a_virtual_clock_has_no_thread_and_publishes_at_the_start_what_was_prepared() -> None:
    """A stage that was killed between its note and the commit may get no further batch."""
    disk = Disk(now=50)
    disk.start().take(batch(1, 10))
    assert disk.deliveries.shown == []
    disk.start().start()
    assert disk.deliveries.shown == ["1@10"]


def test_the_publisher_sleeps_until_the_next_part_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 ms at most, for the clock may be set; after a version so long, that what is due soon after comes together."""
    at = [500]
    monkeypatch.setattr("pipeline.dispatch.publisher.monotonic_ms", lambda: at[0])
    disk = Disk()
    publisher = disk.start()
    assert publisher._pause_ms() == 50
    publisher.take(batch(1, 10, 20, 200))
    assert publisher._pause_ms() == 10
    disk.now, at[0] = 10, 510
    publisher.publish_due()
    at[0] = 515
    assert publisher._pause_ms() == 45
    at[0] = 561
    assert publisher._pause_ms() == 10
    disk.now = 20
    publisher.publish_due()
    at[0] = 700
    assert publisher._pause_ms() == 50

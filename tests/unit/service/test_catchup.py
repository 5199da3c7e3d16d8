"""After a start the schedule's clock stands still until ingest has taken what came while nobody took it."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.service.catchup import CatchUp


@dataclass
class Ingest:
    """An ingest that has read up to a version, the inbox, and a clock."""

    version: int = 4
    newest: int = 9
    now: int = 1_000

    def catch_up(self) -> CatchUp:
        """Begin to look."""
        return CatchUp(self, lambda: self.newest, lambda: self.now)  # type: ignore[arg-type]

    def takes(self, ms: int) -> None:
        """It takes all that is there now, in so many ms; meanwhile another version comes."""
        self.version, self.newest, self.now = self.newest + 1, self.newest + 1, self.now + ms


def test_it_is_over_when_new_versions_are_taken_soon() -> None:
    """While an ingest takes what is old, new messages come, some of which are due before what waits in the state."""
    ingest = Ingest()
    catch_up = ingest.catch_up()
    assert catch_up.lasts()
    ingest.takes(15_000)
    assert catch_up.lasts()
    ingest.takes(4_000)
    assert catch_up.lasts()
    ingest.takes(1_500)
    assert not catch_up.lasts()
    ingest.newest, ingest.now = 99, 900_000
    assert not catch_up.lasts()


def test_it_is_over_when_ingest_is_as_far_as_it_comes() -> None:
    """Under a load that ingest does not keep up with messages come late; nobody waits for the end of that."""
    ingest = Ingest()
    catch_up = ingest.catch_up()
    for ms, lasts in ((40_000, True), (15_000, True), (9_000, False)):
        ingest.takes(ms)
        assert catch_up.lasts() is lasts


def test_an_ingest_that_stands_still_is_not_waited_for() -> None:
    """It may be a job of its own that is stopped. One that goes on is waited for, however much it has to take."""
    ingest = Ingest()
    catch_up = ingest.catch_up()
    for version in (6, 8):
        ingest.now += 59_000
        assert catch_up.lasts()
        ingest.version = version
        assert catch_up.lasts()
    ingest.now += 60_000
    assert not catch_up.lasts()


def test_an_ingest_that_is_not_behind_holds_nobody_up() -> None:
    """A schedule that starts beside an ingest that runs."""
    assert not Ingest(version=10).catch_up().lasts()

"""Two processes publish for one sink where no lock holds them apart: in an object store, while one lets go of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import LogPlace, SinkPlaces, TakenUp
from tests.support.dispatching import Dispatching, T
from tests.support.sinks import Killed, MemoryBroker, ahead, run


class Slow(SinkPlaces):
    """Notes before which another process does something, once."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def take_up(self, name: str, epoch: int, taken: TakenUp) -> None:
        """As in `SinkPlaces`."""
        then, self.meanwhile = self.meanwhile, lambda: None
        then()
        super().take_up(name, epoch, taken)


@pytest.mark.parametrize("keeps", [True, False])
def test_what_an_earlier_process_notes_late_changes_no_turn(dispatch: Dispatching, *, keeps: bool) -> None:
    """It had compared its notes, the later one published by others, and the next one passed over a message."""
    broker, notes = MemoryBroker(keeps_place=keeps), Slow(Files(), dispatch.root)
    older, younger = ahead(dispatch, broker, noted=notes), ahead(dispatch, broker, most=1)
    dispatch.prepare(1, [(T + 10, "a"), (T + 15, "b")])

    def another() -> None:
        dispatch.now = T + 20
        assert younger.step()

    notes.meanwhile = another
    with suppress(Killed):
        run(older)
    assert broker.payloads == [b"a"]
    run(ahead(dispatch, broker))
    assert broker.payloads == [b"a", b"b"]


def test_notes_count_though_a_copy_lost_the_folders_of_epochs(tmp_path: Path) -> None:
    """Stores have no empty folders, so tools that copy there leave them out: notes from before would count for ever."""
    places, taken = SinkPlaces(Files(), str(tmp_path)), [TakenUp(n, n, 0, LogPlace(n, 0)) for n in range(4)]
    places.begin("s").take_up(taken[0])
    places.begin("s").take_up(taken[1])
    for number in ("1", "2"):
        shutil.rmtree(Path(places.folder, "s.epochs", number), ignore_errors=True)
    begun = places.begin("s")
    assert begun.taken_up() == taken[1]
    begun.take_up(taken[2])
    assert not begun.is_over
    assert places.begin("s").taken_up() == taken[2]

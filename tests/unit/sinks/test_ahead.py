"""A sink publishes what is prepared when it is due, before it is visible; each once, in order, whoever dies when."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.errors import SinkPlaceGone
from pipeline.sinks.loop import SinkLoop
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import LogPlace, SinkPlace, SinkPlaces, TakenUp
from tests.support.client import empty_warehouse
from tests.support.dispatching import Dispatching, Named, T
from tests.support.sinks import Killed, MemoryBroker, ahead, delivered, places, run, version


class Mortal(SinkPlaces):
    """Notes that are the last thing that a process does, before them or behind them, when that is wanted.

    Attributes:
        fails: what comes of the next notes: nothing, or death.
    """

    fails: list[str]

    def put(self, name: str, place: SinkPlace, *, lasting: bool = False) -> None:
        """As in `SinkPlaces`."""
        when = self._dies_before()
        super().put(name, place, lasting=lasting)
        self._dies_behind(when)

    def take_up(self, name: str, epoch: int, taken: TakenUp) -> None:
        """As in `SinkPlaces`."""
        when = self._dies_before()
        super().take_up(name, epoch, taken)
        self._dies_behind(when)

    def _dies_before(self) -> str:
        when = self.fails.pop(0) if self.fails else ""
        if when == "before":
            raise Killed
        return when

    def _dies_behind(self, when: str) -> None:
        if when == "after":
            raise Killed


def mortal(dispatch: Dispatching, broker: MemoryBroker, most: int, fails: list[str]) -> SinkLoop:
    """A sink whose notes fail from here on."""
    noted = Mortal(Files(), dispatch.root)
    noted.fails = []
    made = ahead(dispatch, broker, most, noted=noted)
    noted.fails = fails
    return made


def test_what_is_prepared_is_published_when_it_is_due_and_not_before(dispatch: Dispatching) -> None:
    """To the millisecond, though the part that it is in is not visible yet."""
    broker = MemoryBroker()
    loop = ahead(dispatch, broker)
    dispatch.prepare(1, [(T + 10, "a"), (T + 20, "b"), (T + 20, "c"), (T + 30, "d")])
    for now, names in ((T + 9, []), (T + 10, [b"a"]), (T + 19, [b"a"]), (T + 20, [b"a", b"b", b"c"])):
        dispatch.now = now
        run(loop)
        assert broker.payloads == names
    assert version(dispatch.root) == 0, "nothing is visible"


def test_what_is_published_ahead_is_not_published_again_when_it_is_visible(dispatch: Dispatching) -> None:
    """Neither by the same process nor by the next one."""
    broker = MemoryBroker()
    loop = ahead(dispatch, broker)
    dispatch.prepare(1, [(T + 10, "a"), (T + 20, "b")], [(T + 30, "c")])
    dispatch.now = T + 15
    run(loop)
    dispatch.now = T + 25
    dispatch.publish()
    run(loop)
    dispatch.now = T + 40
    dispatch.publish()
    run(ahead(dispatch, broker))
    assert broker.payloads == [b"a", b"b", b"c"]


def test_parts_that_overlap_are_published_in_the_order_in_which_they_are_due(dispatch: Dispatching) -> None:
    """What was prepared later and is due earlier comes earlier."""
    broker = MemoryBroker()
    loop = ahead(dispatch, broker)
    dispatch.prepare(1, [(T + 10, "a"), (T + 30, "c")])
    run(loop)
    dispatch.prepare(2, [(T + 20, "b"), (T + 40, "d")])
    run(loop)
    dispatch.now = T + 50
    run(loop)
    assert broker.payloads == [b"a", b"b", b"c", b"d"]


def test_what_is_prepared_too_late_comes_behind_what_is_published(dispatch: Dispatching) -> None:
    """The next process knows the same order; a broker that drops what it has already must drop nothing else."""
    broker = MemoryBroker(keeps_place=False)
    loop = ahead(dispatch, broker)
    dispatch.prepare(1, [(T + 10, "a"), (T + 30, "d")])
    dispatch.now = T + 20
    run(loop)
    dispatch.prepare(2, [(T + 5, "b"), (T + 20, "c")])
    run(loop)
    dispatch.now = T + 30
    run(ahead(dispatch, broker))
    assert broker.payloads == [b"a", b"b", b"c", b"d"]


def test_a_sink_begins_with_what_was_prepared_and_not_visible_when_it_was_named(dispatch: Dispatching) -> None:
    """What of the same batch was visible by then is not its."""
    broker = MemoryBroker()
    dispatch.prepare(1, [(T + 10, "a")], [(T + 20, "b")])
    dispatch.now = T + 10
    dispatch.publish()
    loop = ahead(dispatch, broker, after=version(dispatch.root))
    dispatch.now = T + 20
    run(loop)
    assert broker.payloads == [b"b"]


def test_what_waits_for_a_sink_that_is_behind_is_read_from_the_log(dispatch: Dispatching) -> None:
    """The shelf forgets what is visible, and a broker may be away for long."""
    broker = MemoryBroker()
    loop = ahead(dispatch, broker)
    for number in range(1, 5):
        dispatch.now = T + 10 * number
        dispatch.prepare(number, [(dispatch.now, f"m{number}")], [(T + 100 + number, f"n{number}")])
        dispatch.publish()
    dispatch.log.add({"commitInfo": {"timestamp": 0}})
    while loop.step():
        assert len(broker.payloads) <= 4
    assert broker.payloads == [b"m1", b"m2", b"m3", b"m4"]
    dispatch.now = T + 110
    run(ahead(dispatch, broker, most=1))
    assert broker.payloads[4:] == [b"n1", b"n2", b"n3", b"n4"]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_a_clock_that_steps_back_holds_what_is_not_due_and_loses_nothing(
    dispatch: Dispatching, *, keeps: bool, again: bool
) -> None:
    """What comes meanwhile is behind what is published, for a broker that drops what it has, too, and after a start."""
    broker = MemoryBroker(keeps_place=keeps)
    loop = ahead(dispatch, broker)
    dispatch.prepare(1, [(T + 400, "a"), (T + 1_000, "d")])
    run(loop)
    dispatch.now = T + 500
    run(loop)
    dispatch.now = T + 100
    for number, message in ((2, (T + 90, "b")), (3, (T + 100, "c"))):
        dispatch.prepare(number, [message])
        loop = ahead(dispatch, broker) if again else loop
        run(loop)
    assert broker.payloads == [b"a", b"b", b"c"]
    dispatch.now = T + 1_000
    run(ahead(dispatch, broker))
    assert broker.payloads == [b"a", b"b", b"c", b"d"]


def test_what_is_sent_and_not_confirmed_is_sent_again(dispatch: Dispatching, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is visible, and other lots were taken up since."""
    monkeypatch.setattr("pipeline.sinks.loop._CONFIRMED_MS", 60_000)
    broker = MemoryBroker(keeps_place=False, holds=True)
    loop = ahead(dispatch, broker)
    for number, name in enumerate("abc", 1):
        dispatch.now += 10
        dispatch.prepare(number, [(dispatch.now, name)])
        dispatch.publish()
        run(loop)
    assert broker.payloads == []
    loop = ahead(dispatch, broker)
    run(loop)
    loop.stop()
    assert broker.payloads == [b"a", b"b", b"c"]


def test_a_sink_of_an_earlier_version_goes_on_in_the_middle_of_a_version(dispatch: Dispatching) -> None:
    """It had noted versions and rows."""
    broker = MemoryBroker()
    delivered(dispatch.root, "a", "b", "c")
    loop = ahead(dispatch, broker)
    places(dispatch.root).put(loop.name, SinkPlace("t", "s", 1, 2, 2, begun=True))
    broker.place = LogPlace(1, 2)
    dispatch.prepare(1, [(T + 10, "d")])
    dispatch.now = T + 10
    for _ in range(2):
        run(ahead(dispatch, broker))
    assert broker.payloads == [b"c", b"d"]


def test_a_sink_whose_notes_are_gone_stands_still(dispatch: Dispatching) -> None:
    """Nobody knows in which order it has published."""
    for broker in (MemoryBroker(), MemoryBroker(keeps_place=False)):
        delivered(dispatch.root, "a")
        loop = ahead(dispatch, broker)
        run(loop)
        places(dispatch.root).drop(loop.name)
        delivered(dispatch.root, "b")
        with pytest.raises(SinkPlaceGone, match="noted nowhere"):
            run(ahead(dispatch, broker))


@pytest.mark.parametrize("keeps", [True, False])
def test_a_warehouse_that_was_set_back_to_a_copy_stops_its_sinks(tmp_path: Path, *, keeps: bool) -> None:
    """What it delivers once more was published."""
    dispatch, broker = Dispatching.of_new(str(tmp_path / "w")), MemoryBroker(keeps_place=keeps)
    loop = ahead(dispatch, broker)
    for number in range(1, 4):
        dispatch.prepare(number, [(T + 10 * number, f"{number}")])
        dispatch.now = T + 10 * number
        run(loop)
        dispatch.publish()
        if number == 1:
            copytree(tmp_path / "w", tmp_path / "copy")
    rmtree(tmp_path / "w")
    copytree(tmp_path / "copy", tmp_path / "w")
    with pytest.raises(SinkPlaceGone, match="set back"):
        run(ahead(dispatch, broker))


def test_the_log_is_needed_from_what_is_not_published(dispatch: Dispatching) -> None:
    """And what a sink has done with is forgotten, or its notes would grow for ever."""
    loop = ahead(dispatch, MemoryBroker())
    for number in range(1, 9):
        dispatch.prepare(number, [(T + 10 * number, "a")])
        dispatch.now = T + 10 * number
        dispatch.publish()
        run(loop)
    loop.stop()
    taken = places(dispatch.root).taken_up(loop.name)
    assert taken is not None
    assert (taken.version, dict(taken.since)) == (9, {})
    assert places(dispatch.root).needed() == 9


_DEATHS = 12
parts = st.lists(st.lists(st.integers(-20, 120), min_size=1, max_size=3), min_size=1, max_size=2)
events = st.one_of(
    st.tuples(st.just("prepare"), parts),
    st.tuples(st.just("pass"), st.integers(1, 60)),
    st.tuples(st.just("step back"), st.integers(1, 100)),
    st.tuples(st.just("publish"), st.none()),
    st.tuples(st.just("sink"), st.integers(1, 4)),
    st.tuples(st.just("start sink"), st.none()),
    st.tuples(st.just("start dispatch"), st.none()),
    st.tuples(st.just("others"), st.none()),
)
deaths = st.lists(st.sampled_from(["", "", "before", "after"]), max_size=_DEATHS)


class Course:
    """What happens in a warehouse, and what has to be so at each time."""

    def __init__(self, root: str, broker: MemoryBroker, most: int, fails: list[str]) -> None:
        """Begin at T."""
        self.dispatch, self.broker, self.most, self.fails = Dispatching(root), broker, most, fails
        self.latest, self.batches = T, list[list[Named]]()
        self.loop = mortal(self.dispatch, broker, most, fails)

    def happens(self, what: str, value: Any) -> None:  # noqa: ANN401 - of an event
        """One event."""
        dispatch = self.dispatch
        if what == "prepare":
            dues = sorted(dispatch.now + due for part in value for due in part)
            batch = [(due, f"{len(self.batches)}.{place}") for place, due in enumerate(dues)]
            ends = [0, *(sum(map(len, value[: n + 1])) for n in range(len(value)))]
            self.batches.append(batch)
            dispatch.prepare(len(self.batches), *(batch[a:b] for a, b in pairwise(ends)))
        elif what == "pass":
            dispatch.now += value
            self.latest = max(self.latest, dispatch.now)
        elif what == "step back":
            dispatch.now -= value
        elif what == "publish":
            dispatch.publish()
        elif what == "start dispatch":
            dispatch.start()
        elif what == "others":
            dispatch.log.add({"commitInfo": {"timestamp": 0}})
        elif what == "start sink":
            self.loop = mortal(dispatch, self.broker, self.most, self.fails)
        else:
            self.steps(value)

    def steps(self, most: int) -> bool:
        """Steps of the sink; each death is followed by the next process. Whether there may be more."""
        for _ in range(most):
            try:
                more = self.loop.step()
            except Killed:
                more = True
                self.loop = mortal(self.dispatch, self.broker, self.most, self.fails)
            due = {name: when for batch in self.batches for when, name in batch}
            assert all(due[(each or b"").decode()] <= self.latest for each in self.broker.payloads), "early"
            if not more:
                return False
        return True

    def ends(self) -> None:
        """All that was prepared is there, once, and that of a batch is in order."""
        self.dispatch.now = self.latest = self.latest + 1_000
        self.dispatch.publish()
        for _ in range(2 * _DEATHS):
            while self.steps(1):
                pass
            with suppress(Killed):
                self.loop.stop()
            self.loop = mortal(self.dispatch, self.broker, self.most, self.fails)
        came = [(each or b"").decode() for each in self.broker.payloads]
        assert sorted(came) == sorted(name for batch in self.batches for _, name in batch)
        for number, batch in enumerate(self.batches):
            assert [name for name in came if name.startswith(f"{number}.")] == [name for _, name in batch]


@settings(max_examples=max(1, settings().max_examples // 2))
@given(
    happened=st.lists(events, min_size=3, max_size=20),
    publications=deaths,
    notes=deaths,
    most=st.sampled_from([1, 2, 100]),
    kind=st.sampled_from(["keeps places", "confirms at once", "confirms late"]),
)
def test_whoever_dies_when_each_message_is_published_once_in_order_and_not_early(
    tmp_path_factory: pytest.TempPathFactory,
    happened: list[tuple[str, Any]],
    publications: list[str],
    notes: list[str],
    most: int,
    kind: str,
) -> None:
    """Beside publications and notes; with a clock that steps back, and commits of others in between."""
    root = copytree(empty_warehouse(), str(tmp_path_factory.mktemp("w") / "warehouse"))
    broker = MemoryBroker(fails=publications, keeps_place=kind == "keeps places", holds=kind != "keeps places")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.sinks.loop._CONFIRMED_MS", 0 if kind == "confirms at once" else 60_000)
        course = Course(root, broker, most, notes)
        for what, value in happened:
            course.happens(what, value)
        course.ends()

"""`delayline receive` and a store that does not answer for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from deltalake import DeltaTable

from jobs.commands.receive import receive
from pipeline.client.tables.datarows import DataRows
from pipeline.client.tables.deliveries import Deliveries, Delivery
from pipeline.delta.deltars import path_of
from pipeline.delta.logs import entries
from schemas import DELIVERIES
from tests.support.client import delivery_row, message_row, new_warehouse, put

AWAY = "AWS Error NETWORK_CONNECTION during GetObject operation"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def delivered(root: str, *numbers: int) -> None:
    """Deliver messages in one version; their entries are these numbers."""
    put(root, DELIVERIES, *(delivery_row(message_row(1, each, each), each) for each in numbers))


def entry(delivery: Delivery) -> str:
    """How a delivery is printed."""
    return str(delivery.position[1])


@pytest.fixture
def going(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that gives one more row of a version each time, and then does not answer, twice."""
    read, halts = DataRows.pieces, [1, 2]

    def some(self: DataRows, *args: Any) -> Iterator[pa.Table]:  # noqa: ANN401 - passed on
        for rows in read(self, *args):
            for place in range(rows.num_rows):
                if halts and place >= halts[0]:
                    del halts[0]
                    raise OSError(AWAY)
                yield rows.slice(place, 1)

    monkeypatch.setattr(DataRows, "pieces", some)


@pytest.mark.usefixtures("going")
def test_each_delivery_is_printed_once_however_often_the_store_does_not_answer(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a version of which only some came. Who looks on is told once for each time."""
    delivered(root, 1, 2, 3)
    delivered(root, 4)
    printed, warned = list[str](), list[str]()
    monkeypatch.setattr("jobs.commands.receive.time", SimpleNamespace(sleep=lambda _: None))
    count = receive(
        Deliveries(root), (None, None, None), printed.append, warned.append, form=entry, follow=True, limit=4
    )
    assert (count, printed) == (4, ["1", "2", "3", "4"])
    assert warned == [f"the store does not answer, and is asked again: {AWAY}"] * 2


def test_a_log_that_does_not_answer_is_asked_again_and_without_following_that_is_the_end(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed meanwhile comes then."""
    deliveries, name = Deliveries(root), "pipeline.client.tables.tail.entry"

    def away(*_: object) -> None:
        raise OSError(AWAY)

    pauses = list[float]()

    def back(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            monkeypatch.setattr(name, entries.entry)

    monkeypatch.setattr(name, away)
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        receive(deliveries, (None, None, None), print, print, form=entry, follow=False, limit=None)
    monkeypatch.setattr("jobs.commands.receive.time", SimpleNamespace(sleep=back))
    delivered(root, 7)
    printed, warned = list[str](), list[str]()
    receive(deliveries, (None, None, None), printed.append, warned.append, form=entry, follow=True, limit=1)
    assert (printed, len(warned), pauses) == (["7"], 1, [0.4, 0.8, 1.6])


def test_a_file_that_is_broken_ends_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has answered; to ask again changes nothing."""

    def broken(*_: object) -> None:
        raise OSError("Couldn't deserialize thrift: TProtocolException: Invalid data")

    delivered(root, 1)
    monkeypatch.setattr("pipeline.client.tables.tail.entry", broken)
    with pytest.raises(OSError, match="thrift"):
        receive(Deliveries(root), (None, None, None), print, print, form=entry, follow=True, limit=1)


@pytest.mark.parametrize(("other", "left"), [((), ["2", "3"]), (("t", None), ["1", "2", "3"])])
def test_what_was_delivered_before_the_beginning_of_the_log_comes_once_too(
    root: str, monkeypatch: pytest.MonkeyPatch, other: tuple[str | None, ...], left: list[str]
) -> None:
    """The call that failed had given some of it. A call for something else gets all of that."""
    delivered(root, 1, 2, 3)
    folder = path_of(root, DELIVERIES)
    DeltaTable(folder, version=1).create_checkpoint()
    Path(folder, "_delta_log", f"{0:020d}.json").unlink()
    reader, rows = Deliveries(root), DataRows.of

    def some(self: DataRows, *what: Any) -> Iterator[pa.Table]:  # noqa: ANN401 - whatever it takes
        monkeypatch.setattr(DataRows, "of", rows)
        yield next(rows(self, *what)).slice(0, 1)
        raise OSError(AWAY)

    monkeypatch.setattr(DataRows, "of", some)
    taken = reader.take()
    assert entry(next(taken)) == "1"
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        next(taken)
    assert [entry(each) for each in reader.take(*other)] == left
    monkeypatch.setattr(DataRows, "of", None)
    assert list(reader.take()) == []


def test_deliveries_of_a_key_are_printed_alone(root: str) -> None:
    """And so many of them."""
    for number, key in enumerate(("a", "b", None, "b")):
        put(root, DELIVERIES, {**delivery_row(message_row(1, number, number), number), "message_key": key})
    printed = list[str]()
    assert (
        receive(Deliveries(root), (None, None, "b"), printed.append, print, form=entry, follow=False, limit=None) == 2
    )
    assert printed == ["1", "3"]
    assert receive(Deliveries(root), (None, None, "b"), printed.append, print, form=entry, follow=True, limit=1) == 1


def test_who_follows_is_told_that_no_job_runs(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing is printed for ever, and nobody knows why."""
    monkeypatch.setattr("pipeline.client.tables.job._QUIET_S", 0.0)
    delivered(root, 1)
    printed, warned = list[str](), list[str]()

    def later(_: float) -> None:
        if warned:
            delivered(root, 2)

    monkeypatch.setattr("jobs.commands.receive.time", SimpleNamespace(sleep=later))
    receive(Deliveries(root), (None, None, None), printed.append, warned.append, form=entry, follow=True, limit=2)
    assert (printed, warned) == (["1", "2"], [f"no job has run on {root}: delayline run --warehouse {root}"])

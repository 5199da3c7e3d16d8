"""How many messages files of the log hold within bounds, and who encodes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="the log of messages needs requirements/all.lock")

from pipeline.config.settings import Settings
from pipeline.delta.reading.messages import Bounds, MessageFile, about
from pipeline.ingest.stage import Ingest

FILES = [
    MessageFile("first", Bounds(1, 4, 1_000, 1_999), 500),
    MessageFile("second", Bounds(3, 9, 1_500, 2_499), 100),
    MessageFile("unknown", Bounds(), 0),
]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Bounds(), 600),
        (Bounds(first_due=1_000, last_due=1_499), 250),
        (Bounds(first_due=1_750, last_due=1_999), 150),
        (Bounds(first_due=1_500, last_due=1_500), 1),
        (Bounds(first_ledger=5), 100),
        (Bounds(first_due=2_500), 0),
    ],
)
def test_messages_within_bounds_are_counted_by_the_statistics_of_files(wanted: Bounds, count: int) -> None:
    """As if each file were filled evenly: it decides where work is done, and nothing else."""
    assert about(FILES, wanted) == count


@pytest.mark.parametrize(
    ("master", "driver_rows", "here"),
    [
        ("local[2,4]", 0, False),
        ("local[2,4]", 1, True),
        ("spark://127.0.0.1:7077", 0, False),
        ("spark://127.0.0.1:7077", 249, False),
        ("spark://127.0.0.1:7077", 250, True),
        ("local-cluster[2,1,1024]", 249, False),
    ],
)
def test_more_positions_than_the_driver_takes_are_encoded_by_executors_that_have_cores_of_their_own(
    master: str, driver_rows: int, *, here: bool
) -> None:
    """A driver would be what a cluster waits for; on one machine it is faster than its executors."""
    ingest = Ingest.__new__(Ingest)
    vars(ingest).update(
        _settings=Settings(driver_rows=driver_rows),
        _warehouse=SimpleNamespace(session=SimpleNamespace(sparkContext=SimpleNamespace(master=master))),
        _log=SimpleNamespace(files=lambda _: FILES[:1]),
    )
    assert ingest._encodes_here([Bounds(first_due=1_000, last_due=1_499)]) is here

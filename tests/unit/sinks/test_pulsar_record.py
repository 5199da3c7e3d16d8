"""A delivery as a message of Pulsar: its sequence id, its partition, its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.config.errors import BadValue
from pipeline.sinks.pulsar import partition, record
from pipeline.subscriptions.sinkplaces import TurnPlace

_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def row(**columns: Any) -> dict[str, Any]:  # noqa: ANN401 - values of columns
    """A row of `deliveries`."""
    return {"message_key": None, "properties": None, "publish_time": _TIME, "deliver_at": None, **columns}


_TURN = 1_800_000_000_000
places = st.builds(
    TurnPlace,
    st.integers(_TURN, _TURN + 3) | st.integers(_TURN, _TURN + 2**38),
    st.sampled_from((1, 2**24 - 1)) | st.integers(1, 2**24 - 1),
)


@given(places, places)
def test_sequence_ids_are_in_the_order_of_places(one: TurnPlace, other: TurnPlace) -> None:
    """And fit into 63 bits, as the broker is written in Java."""
    first, second = (record(place, row())["sequence_id"] for place in (one, other))
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)
    assert 0 < first < 2**63


def test_a_ms_with_more_deliveries_than_ids_is_refused() -> None:
    """Else the last ones would have the ids of the next ms."""
    with pytest.raises(BadValue, match="deliveries"):
        record(TurnPlace(_TURN, 2**24), row())


@pytest.mark.parametrize("turn", [1_735_689_600_000, 1_735_689_600_000 + 2**39])
def test_a_time_without_ids_is_refused(turn: int) -> None:
    """A clock that is wrong by years."""
    with pytest.raises(BadValue, match="turn"):
        record(TurnPlace(turn, 1), row())


@pytest.mark.parametrize(
    ("key", "code"), [("", 0), ("hello", 99_162_322), ("order-1", 940_372_338), ("é😀", 1_996_812)]
)
def test_a_key_has_the_hash_of_javas_strings(key: str, code: int) -> None:
    """So the messages of a key are where other producers put them."""
    assert partition(key, TurnPlace(0, 0), 2**31) == code


def test_the_time_of_the_event_is_the_due_time_in_whole_ms() -> None:
    """Rounded up; a message that was due when it was sent has that time."""
    late, early = _TIME + timedelta(seconds=5, microseconds=1), _TIME - timedelta(days=1)
    base = int(_TIME.timestamp() * 1_000)
    assert record(TurnPlace(_TURN, 1), row(deliver_at=late))["event_timestamp"] == base + 5_001
    assert record(TurnPlace(_TURN, 1), row(deliver_at=early))["event_timestamp"] == base


@pytest.mark.parametrize("text", ["9" * 5_000, "9" * 19, "-1", "\u0661", "soon"])
def test_a_time_of_the_event_that_is_none_is_that_of_the_message(text: str) -> None:
    """Anybody may write the property: a number of 5 000 digits, which Python refuses to read, ended the sink."""
    made = record(TurnPlace(_TURN, 1), row(properties=[("delayline.event_time", text)]))
    assert made["event_timestamp"] == int(_TIME.timestamp() * 1_000)

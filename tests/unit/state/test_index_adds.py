"""TimeBucketIndex by example: what is taken, and what counts as pending already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from state import (
    InvalidArgument,
    OutOfRange,
    encode_chunk,
)
from state.blocks import Block
from tests.support.index_examples import FOREVER, LAST_ENTRY, LAST_LEDGER, LAST_MS, MakeIndex, batch, quads, triples

# ---- idempotent adds, and how little is read to know


def test_a_position_that_comes_twice_in_one_call_counts_once(make_index: MakeIndex) -> None:
    """Two times of one bucket are the same; two buckets are two messages."""
    index = make_index(1000)
    assert index.add([1, 1, 1, 1], [7, 7, 7, 8], [600, 1024, 1025, 600]) == 3
    assert triples(index.pop_due(FOREVER)) == [(1024, 1, 7), (1024, 1, 8), (1536, 1, 7)]


@pytest.mark.parametrize("first", ["add", "add_one", "append_chunk"])
@pytest.mark.parametrize("second", ["add", "add_one", "append_chunk"])
def test_a_position_that_comes_again_by_any_door_counts_once(make_index: MakeIndex, first: str, second: str) -> None:
    """Three messages, then four of which two are known: two are new."""
    index = make_index(1000)

    def put(door: str, entries: Sequence[int]) -> int:
        if door == "add":
            return index.add(*batch(1, entries, 600))
        if door == "add_one":
            return sum(index.add_one(1, entry, 600) for entry in entries)
        return index.append_chunk(encode_chunk(*batch(1, entries, 600)))

    assert put(first, [1, 2, 3]) == 3
    assert put(second, [0, 2, 3, 4]) == 2
    assert put(first, [4, 0]) == 0
    assert quads(index.pop_due_runs(1024)) == [(1024, 1, 0, 4)]


def test_a_position_that_was_popped_is_new_again(make_index: MakeIndex) -> None:
    """Counting once holds while a message is pending, exactly: also inside a block that is partly gone."""
    index = make_index(1)
    index.add(*batch(1, [1, 2, 3, 5], 10))
    index.pop_due(10, 2)
    assert index.add(*batch(1, [1, 2, 3, 4, 5], 10)) == 3
    assert [index.add_one(1, entry, 10) for entry in (1, 6)] == [False, True]
    assert quads(index.pop_due_runs(10)) == [(10, 1, 1, 6)]


def test_a_chunk_that_is_known_whole_adds_nothing(make_index: MakeIndex) -> None:
    """A replayed append is a no-op to the byte."""
    index = make_index()
    chunk = encode_chunk(*batch(3, range(100), range(1_000, 101_000, 1_000)))
    assert index.append_chunk(chunk) == 100
    before = index.to_bytes()
    assert index.append_chunk(chunk) == 0
    assert index.to_bytes() == before


@pytest.mark.parametrize(
    ("ledger", "entries", "at"), [(1, range(50), 90_000), (2, range(50), 5_000), (1, range(50, 99), 5_000)]
)
def test_a_chunk_apart_in_time_ledger_or_entries_is_appended_without_decoding_any_other(
    make_index: MakeIndex, decoded: list[Block], ledger: int, entries: range, at: int
) -> None:
    """One range that does not overlap is enough; the new chunk is not decoded either."""
    index = make_index()
    index.append_chunk(encode_chunk(*batch(1, range(50), 5_000)))
    index.append_chunk(encode_chunk(*batch(ledger, entries, at)))
    assert decoded == []
    assert len(index) == 50 + len(entries)


def test_an_array_apart_from_the_rest_is_added_without_decoding(make_index: MakeIndex, decoded: list[Block]) -> None:
    """A publisher's next entries cost nothing of what is there; so do single ones."""
    index = make_index()
    for start in range(0, 500, 100):
        index.add(*batch(1, range(start, start + 100), 5_000))
    for entry in range(500, 600):
        index.add_one(1, entry, 5_000)
    assert decoded == []


def test_only_blocks_whose_ranges_overlap_are_decoded(
    make_index: MakeIndex, decoded: list[Block], small_blocks: int
) -> None:
    """Ten blocks apart in time, one of them in the way of a repeated message: that one is read, and the new one."""
    index = make_index(1)
    times = [100 * i for i in range(10) for _ in range(small_blocks)]
    index.add([1] * 40, [2 * i for i in range(40)], times)
    index.add([2] * 40, [2 * i for i in range(40)], times)
    assert decoded == []
    assert index.add([1, 1], [24, 25], [300, 300]) == 1
    assert {(block.first_key, block.last_key) for block in decoded} == {(300, 300)}
    assert len(decoded) == 2
    decoded.clear()
    assert not index.add_one(1, 24, 300)
    assert index.add_one(1, 1_000, 300)
    assert [(block.first_key, block.last_key) for block in decoded] == [(300, 300)]
    index.pop_due(FOREVER)


# ---- what is taken as an array


def read_only(values: list[int]) -> npt.NDArray[np.int64]:
    """An array that must not be written to."""
    array = np.asarray(values, dtype=np.int64)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        lambda values: [np.int32(value) for value in values],
        lambda values: np.asarray(values, dtype=np.uint8),
        lambda values: np.asarray(values, dtype=np.int16),
        lambda values: np.asarray(values, dtype=np.uint32),
        lambda values: np.asarray(values, dtype=np.uint64),
        lambda values: np.asarray(values, dtype=">i8"),
        lambda values: np.repeat(np.asarray(values), 3)[::3],
        lambda values: np.asarray(values[::-1])[::-1],
        read_only,
    ],
    ids=["list", "tuple", "numpy ints", "u8", "i16", "u32", "u64", "big-endian", "strided", "reversed", "read-only"],
)
def test_integers_of_any_kind_are_taken(make_index: MakeIndex, convert: Callable[[list[int]], npt.ArrayLike]) -> None:
    """Lists, tuples, every integer type and layout give the same bytes and the same index."""
    columns = [[3, 1, 2], [10, 20, 30], [100, 120, 110]]
    index = make_index(1)
    assert index.add(*map(convert, columns)) == 3
    assert triples(index.pop_due(200)) == [(100, 3, 10), (110, 2, 30), (120, 1, 20)]
    first, second, third = map(convert, columns)
    assert encode_chunk(first, second, third, 1) == encode_chunk([3, 1, 2], [10, 20, 30], [100, 120, 110], 1)


def test_single_messages_may_be_numpy_ints(make_index: MakeIndex) -> None:
    """They are the same messages as plain ints, small types included."""
    index = make_index(1000)
    assert index.add_one(np.int64(3), np.uint8(4), np.int32(60_400))  # type: ignore[arg-type]
    assert not index.add_one(3, 4, 60_400)
    assert triples(index.pop_due(np.int64(60_416), np.int8(5))) == [(60_416, 3, 4)]  # type: ignore[arg-type]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tick", [1, 1000])
def test_arguments_are_not_changed_and_not_kept(make_index: MakeIndex, tick: int, *, strict: bool) -> None:
    """The caller's arrays read the same afterwards, and writing to them later changes nothing here."""
    arrays = [np.asarray(column, dtype=np.int64) for column in ([2, 1, 1], [9, 8, 8], [5_000, 4_000, 4_000])]
    copies = [array.copy() for array in arrays]
    index, other = make_index(tick, strict), make_index(tick, strict)
    index.add(*arrays)
    other.add(*copies)
    assert [array.tolist() for array in arrays] == [copy.tolist() for copy in copies]
    for array in arrays:
        array[:] = 0
    assert triples(index.pop_due(FOREVER)) == triples(other.pop_due(FOREVER))


@pytest.mark.parametrize("door", ["add", "encode_chunk"])
@pytest.mark.parametrize(
    ("place", "field", "bad"),
    [
        (0, "ledger_ids", [1.0, 2.0]),
        (1, "entry_ids", [1.5, 2.5]),
        (2, "deliver_ats", [float("nan"), 1.0]),
        (0, "ledger_ids", [[1, 2], [3, 4]]),
        (1, "entry_ids", 5),
        (2, "deliver_ats", ["1", "2"]),
        (2, "deliver_ats", [True, False]),
        (2, "deliver_ats", [None, 1]),
        (1, "entry_ids", np.asarray([1, 2], dtype="m8[ms]")),
    ],
    ids=["whole floats", "floats", "nan", "2-d", "0-d", "text", "bools", "None", "timedelta"],
)
def test_what_is_not_a_row_of_integers_is_refused_by_field(
    make_index: MakeIndex, door: str, place: int, field: str, bad: npt.ArrayLike
) -> None:
    """The error names the argument and what would have been accepted."""
    index = make_index()
    columns: list[npt.ArrayLike] = [[1, 2], [1, 2], [5_000, 5_000]]
    columns[place] = bad
    offer: Callable[..., object] = index.add if door == "add" else encode_chunk
    with pytest.raises(InvalidArgument) as caught:
        offer(*columns)
    assert caught.value.field == field
    assert "integers" in caught.value.allowed
    assert len(index) == 0


@pytest.mark.parametrize("lengths", [(1, 2, 2), (2, 1, 2), (2, 2, 0)])
def test_columns_of_different_lengths_are_refused_with_their_lengths(
    make_index: MakeIndex, lengths: tuple[int, int, int]
) -> None:
    """The error holds the three lengths; nothing is cut to the shortest."""
    with pytest.raises(InvalidArgument) as caught:
        make_index().add(*([1] * length for length in lengths))
    assert caught.value.value == list(lengths)


@pytest.mark.parametrize("door", ["add", "encode_chunk", "add_one"])
@pytest.mark.parametrize(
    ("place", "field", "value", "high"),
    [
        (0, "ledger_id", -1, LAST_LEDGER),
        (0, "ledger_id", LAST_LEDGER + 1, LAST_LEDGER),
        (1, "entry_id", -1, LAST_ENTRY),
        (1, "entry_id", LAST_ENTRY + 1, LAST_ENTRY),
        (2, "deliver_at", -1, LAST_MS),
        (2, "deliver_at", LAST_MS + 1, LAST_MS),
    ],
)
def test_values_outside_their_range_are_refused_with_field_value_and_range(
    make_index: MakeIndex, door: str, place: int, field: str, value: int, high: int
) -> None:
    """Every door refuses the same values, and one bad value refuses the whole call."""
    index = make_index()
    message = [1, 1, 5_000]
    message[place] = value
    columns = [[2, message[0]], [2, message[1]], [5_000, message[2]]]
    doors: dict[str, Callable[..., object]] = {"add": index.add, "encode_chunk": encode_chunk, "add_one": index.add_one}
    with pytest.raises(OutOfRange) as caught:
        doors[door](*(message if door == "add_one" else columns))
    error = caught.value
    name = field if door == "add_one" else field + "s"
    assert (error.field, error.value, error.low, error.high) == (name, value, 0, high)
    assert len(index) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_single_message_with_a_fraction_is_refused_by_field(make_index: MakeIndex, place: int) -> None:
    """A time that lost its fraction would be early, so it is refused and not cut."""
    message: list[float] = [1, 1, 60_400]
    message[place] += 0.5
    with pytest.raises(InvalidArgument) as caught:
        make_index().add_one(*message)  # type: ignore[arg-type]
    assert caught.value.field == ("ledger_id", "entry_id", "deliver_at")[place]


@pytest.mark.parametrize("value", [2**63, 2**64, 2**70])
def test_a_number_beyond_64_bits_is_out_of_range_too(make_index: MakeIndex, value: int) -> None:
    """The error names the value, however numpy would hold it."""
    with pytest.raises(OutOfRange) as caught:
        make_index().add([value, 1], [1, 1], [1, 1])
    assert (caught.value.field, caught.value.value) == ("ledger_ids", value)


def test_a_ragged_sequence_is_refused_with_the_name_of_the_field(make_index: MakeIndex) -> None:
    """What numpy cannot make an array of is an argument error like any other."""
    with pytest.raises(InvalidArgument) as caught:
        make_index().add([[1], [2, 3]], [1], [1])
    assert caught.value.field == "ledger_ids"

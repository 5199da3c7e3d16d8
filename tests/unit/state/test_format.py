"""`docs/format.md` is the contract: `state` and a reader written from that page alone see the same in all bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from state import CorruptBytes, TimeBucketIndex, describe_chunk, encode_chunk
from tests.golden.make import chunks as chunk_shapes
from tests.support.forge import (
    BlockParts,
    ChunkParts,
    bitmaps_payload,
    body_of,
    column,
    index_of,
    ledger_table,
    seal_chunk,
    seal_index,
    take_apart,
)
from tests.support.format_reader import Cursor, MessageRun, joined, messages, read_chunk, read_index, unzstd
from tests.support.golden import FOLDER, FOREVER, Golden, content, load
from tests.support.roaring_reader import container_kinds, roaring_runs

GOLDEN = load()
CHUNKS = [golden for golden in GOLDEN if golden.is_chunk]
INDEXES = [golden for golden in GOLDEN if not golden.is_chunk]
each = pytest.mark.parametrize
MAX_TIME = 253_402_300_799_999
Messages = list[tuple[int, int, int]]
"""(ledger, entry, deliver at in ms)."""


def name_of(golden: Golden) -> str:
    """The name in a test report."""
    return golden.name


def bitmap_containers(data: bytes) -> set[str]:
    """The kinds of roaring containers in a chunk."""
    kinds: set[str] = set()
    for block in take_apart(data).blocks:
        if block.kind == 1:
            cursor = Cursor(block.payload)
            number, size = cursor.varint(), cursor.varint()
            sizes = [cursor.column(number) for _ in range(3)][2]
            bitmaps = Cursor(unzstd(cursor.take(cursor.left), size))
            kinds.update(*(container_kinds(bitmaps.take(size)) for size in sizes))
    return kinds


def test_every_golden_file_is_expected_and_there() -> None:
    """A file that nobody reads protects nothing."""
    assert {path.stem for path in FOLDER.glob("*.bin")} == {golden.name for golden in GOLDEN}


def test_the_golden_files_hold_every_container_and_state_of_a_chunk() -> None:
    """What no golden file holds could change its bytes unseen."""
    chunks = {golden.name: read_chunk(golden.data) for golden in CHUNKS}
    assert chunks["bitmap"].kinds == [1]
    assert chunks["mixed"].kinds == [1, 0]
    assert bitmap_containers(next(g.data for g in CHUNKS if g.name == "bitmap")) == {"array", "bitset", "run"}
    assert {chunk.strict for chunk in chunks.values()} == {True, False}
    drained = next(golden for golden in INDEXES if golden.name == "drained_index")
    parts = read_index(drained.data).chunks
    assert len({chunk.bits for chunk in parts}) == len(parts) == 3
    assert min(chunk.skip for chunk in parts) > 0


@each("golden", CHUNKS, ids=name_of)
def test_the_reader_of_the_document_reads_a_golden_chunk_as_it_was_written(golden: Golden) -> None:
    """The page says enough to read bytes of every version, without this library."""
    chunk = read_chunk(golden.data)
    assert joined(chunk.runs) == golden.runs
    assert (chunk.strict, chunk.bits, chunk.kinds) == tuple(golden.expected[k] for k in ("strict", "bits", "kinds"))


@each("golden", CHUNKS, ids=name_of)
def test_an_index_reads_a_golden_chunk_as_it_was_written(golden: Golden) -> None:
    """Bytes are kept for years: what was written once is read the same for ever."""
    index = golden.new_index()
    assert index.append_chunk(golden.data) == golden.count == len(index)
    assert content(index) == golden.runs


@each("golden", CHUNKS, ids=name_of)
def test_a_golden_chunk_is_described_without_being_decoded(golden: Golden) -> None:
    """Parked segments are chosen by this description alone."""
    info, chunk = describe_chunk(golden.data), read_chunk(golden.data)
    due = [run[0] for run in golden.runs]
    assert (info.count, info.first_due, info.last_due) == (golden.count, min(due, default=None), max(due, default=None))
    assert (info.strict, info.bits, info.nbytes) == (chunk.strict, chunk.bits, len(golden.data))
    rows = zip(info.ledger_ids, info.first_entries, info.last_entries, strict=True)
    assert list(rows) == chunk.ledgers.rows


@each("golden", CHUNKS, ids=name_of)
def test_the_messages_of_a_golden_chunk_encoded_today_take_the_same_containers(golden: Golden) -> None:
    """An encoder that stopped using a container would still be right, and many times as large."""
    chunk = read_chunk(chunk_shapes()[golden.name].encode())
    assert joined(chunk.runs) == golden.runs
    assert chunk.kinds == golden.expected["kinds"]


@each("golden", INDEXES, ids=name_of)
def test_the_reader_of_the_document_reads_a_golden_index_as_it_was_written(golden: Golden) -> None:
    """The same for a whole index, with chunks of several ticks, partly taken out."""
    index = read_index(golden.data)
    assert index.runs == golden.runs
    assert index.count == golden.count
    found = (index.strict, index.tick_ms, index.max_chunks, [chunk.skip for chunk in index.chunks])
    assert found == tuple(golden.expected[key] for key in ("strict", "tick_ms", "max_chunks", "skips"))


@each("golden", INDEXES, ids=name_of)
def test_a_golden_index_comes_back_as_it_was_written(golden: Golden) -> None:
    """A restart after an upgrade finds all that was pending, once, and the settings it ran with."""
    index = TimeBucketIndex.from_bytes(golden.data)
    rule = index.rule
    found = (rule.strict, rule.tick_ms, index.max_chunks, len(index))
    assert found == (*(golden.expected[key] for key in ("strict", "tick_ms", "max_chunks")), golden.count)
    assert content(index) == golden.runs


@each("golden", INDEXES, ids=name_of)
def test_a_golden_index_that_is_written_again_holds_the_same(golden: Golden) -> None:
    """State is rewritten in every batch, mostly without having been decoded."""
    again = TimeBucketIndex.from_bytes(golden.data).to_bytes()
    assert read_index(again).runs == golden.runs


@each("version", [0, 2, 3, 127, 255])
@each("golden", GOLDEN, ids=name_of)
def test_an_unknown_version_is_refused_even_where_its_checksum_is_right(golden: Golden, version: int) -> None:
    """A reader that guesses at bytes from the future would release the wrong messages."""
    old_checksum = bytes([version]) + golden.data[1:]
    read: Callable[[bytes], object] = describe_chunk if golden.is_chunk else TimeBucketIndex.from_bytes
    if golden.is_chunk:
        body, payloads = body_of(golden.data)
        data = seal_chunk(body, [payloads], golden.data[2], golden.data[3], version)
    else:
        end = 11 + int.from_bytes(golden.data[3:7], "little")
        data = seal_index(golden.data[11:end], [golden.data[end:]], golden.data[2], version)
    assert data[:3] == old_checksum[:3]
    for bad in (data, old_checksum):
        with pytest.raises(CorruptBytes):
            read(bad)


@each("golden", GOLDEN, ids=name_of)
def test_a_chunk_is_no_index_and_an_index_is_no_chunk(golden: Golden) -> None:
    """Two kinds of bytes lie in the same tables; mixed up they are refused, not read."""
    with pytest.raises(CorruptBytes):
        (TimeBucketIndex.from_bytes if golden.is_chunk else describe_chunk)(golden.data)


def dense(rng: random.Random, size: int) -> Messages:
    """One ledger, one message a ms."""
    at = rng.randrange(10**12)
    return [(9, i, at + i) for i in range(size)]


def interleaved(rng: random.Random, size: int) -> Messages:
    """Two delays: dense cells with holes."""
    return [(9, 60_000 + i, 10**12 + i + rng.choice((0, 10**6))) for i in range(size)]


def sparse(rng: random.Random, size: int) -> Messages:
    """A delay of its own for each."""
    return [(i % 7, i // 7, 10**12 + rng.randrange(10**8)) for i in range(size)]


def wild(rng: random.Random, size: int) -> Messages:
    """Anything that is allowed."""
    return [(rng.randrange(2**62 + 1), rng.randrange(2**31), rng.randrange(MAX_TIME + 1)) for _ in range(size)]


def striped(rng: random.Random, size: int) -> Messages:
    """Many ledgers, taken in turn, bursts due together."""
    return [(i % 100 * 3, i // 100 * rng.choice((1, 1, 1, 5)), i // 500 * 1000) for i in range(size)]


def encoded(given: Messages, tick_ms: int, *, strict: bool = True) -> bytes:
    """The chunk of these messages."""
    ledger_ids, entry_ids, deliver_ats = zip(*given, strict=True)
    return encode_chunk(ledger_ids, entry_ids, deliver_ats, tick_ms, strict)


def wanted(given: Messages, tick_ms: int, *, strict: bool) -> list[tuple[int, int, int]]:
    """(bucket, ledger, entry) of each message, sorted, each once."""
    width = 1 << (tick_ms.bit_length() - 1)
    return sorted({((at + width - 1 if strict else at) // width * width, ledger, e) for ledger, e, at in given})


@each("tick_ms", [1, 1000, 60_000])
@each("size", [2, 700, 10_000, 30_000])
@each("shape", [dense, interleaved, sparse, wild, striped])
def test_a_fresh_chunk_reads_the_same_by_both(
    shape: Callable[[random.Random, int], Messages], size: int, tick_ms: int
) -> None:
    """Shapes that fill several blocks and take either container, not only those of the golden files."""
    rng = random.Random(size + tick_ms)  # noqa: S311 - test data
    given, strict = shape(rng, size), size != 700
    rng.shuffle(given)
    data = encoded(given, tick_ms, strict=strict)
    index = TimeBucketIndex(tick_ms, strict)
    index.append_chunk(data)
    runs = joined(read_chunk(data).runs)
    assert messages(runs) == wanted(given, tick_ms, strict=strict)
    assert content(index) == runs


times = st.integers(0, MAX_TIME) | st.integers(0, 5000).map(lambda ms: 10**12 + ms)
ledgers = st.integers(0, 2**62) | st.integers(0, 3)
entries = st.integers(0, 2**31 - 1) | st.integers(0, 40)
batches = st.lists(st.tuples(ledgers, entries, times), min_size=1, max_size=60)


@given(batches, st.integers(1, 2**41) | st.sampled_from([1, 512, 1000]), st.booleans())
def test_any_messages_read_the_same_by_both(given: Messages, tick_ms: int, strict: bool) -> None:  # noqa: FBT001
    """The corners that nobody thought of."""
    data = encoded(given, tick_ms, strict=strict)
    assert messages(read_chunk(data).runs) == wanted(given, tick_ms, strict=strict)
    index = TimeBucketIndex(tick_ms, strict)
    index.append_chunk(data)
    assert content(index) == joined(read_chunk(data).runs)


@given(st.lists(st.tuples(batches, st.sampled_from([1, 700, 1000, 40_000])), max_size=4), times, st.integers(0, 90))
def test_any_index_reads_the_same_by_both(parts: list[tuple[Messages, int]], now: int, limit: int) -> None:
    """Chunks of several ticks, taken out in part, by time and by number."""
    index = TimeBucketIndex(1000)
    for part, tick_ms in parts:
        index.append_chunk(encoded(part, tick_ms))
    index.pop_due_runs(now // 2)
    index.pop_due(now, limit)
    found = read_index(index.to_bytes())
    assert found.count == len(index)
    assert found.runs == content(index)


def chunk_of_bitmap(entries: list[int], *, runs: bool) -> tuple[bytes, list[MessageRun]]:
    """A chunk with one cell, its bitmap with or without run containers, and what it holds."""
    bitmap = BitMap(entries)
    if runs:
        bitmap.run_optimize()
    found = [(0, 5, first, last) for first, last in roaring_runs(bitmap.serialize())]
    payload = bitmaps_payload([0], [0], [bitmap.serialize()])
    block = BlockParts(payload, kind=1, rows=len(found), count=len(bitmap))
    return ChunkParts((block,), ledger_table((5, 0, 2**31 - 1))).seal(), found


@each("runs", [False, True])
@each("size", [1, 300, 4_096, 4_097, 30_000])
@each("spread", [1, 2, 3, 40, 2**31])
def test_every_roaring_container_reads_the_same_by_both(spread: int, size: int, *, runs: bool) -> None:
    """The encoder takes bitmaps for few shapes; a writer in another language may take them for any."""
    rng = random.Random(spread)  # noqa: S311 - test data
    entries = rng.sample(range(min(size * spread, 2**31)), size)
    data, found = chunk_of_bitmap(entries, runs=runs)
    assert messages(found) == [(0, 5, entry) for entry in sorted(entries)]
    assert content(TimeBucketIndex.from_bytes(index_of(data))) == found == read_chunk(data).runs


def test_longer_forms_of_numbers_are_read_too() -> None:
    """The document allows them, so a writer may be simple."""
    payload = column([0]) + b"\x02\x00\x00\x01\x00" + column([]) + b"\x00\x01\x01\x03"
    body, _ = body_of(ChunkParts((BlockParts(payload),), ledger_table((0, 0, 9))).seal())
    data = seal_chunk(b"\x81\x80\x00" + body[1:], [payload])
    assert content(TimeBucketIndex.from_bytes(index_of(data))) == read_chunk(data).runs == [(0, 0, 3, 3)]


def test_a_limit_of_time_is_the_year_9999_rounded_up() -> None:
    """The last instant that is accepted has a bucket of its own at every width."""
    for bits in range(42):
        data = encode_chunk([1], [1], [MAX_TIME], 1 << bits)
        due = -(-MAX_TIME >> bits) << bits
        assert read_chunk(data).runs == [(due, 1, 1, 1)]
        index = TimeBucketIndex(1 << bits)
        index.append_chunk(data)
        assert index.next_due == due <= FOREVER

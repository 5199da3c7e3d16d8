"""Hostile bytes are harmless: the one declared error, never another, never a wrong answer, never unbounded memory."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from state import CorruptBytes, TimeBucketIndex, describe_chunk
from tests.support.forge import index_of, seal_chunk, seal_index, varint
from tests.support.format_reader import FormatError, MessageRun, joined, read_chunk, read_index
from tests.support.golden import Golden, content, drain, load
from tests.support.hostile import MUTATIONS, Mutation, bombs, index_for, liars

GOLDEN = load()
CHUNKS = [golden for golden in GOLDEN if golden.is_chunk and golden.count]
SMALL = [golden for golden in CHUNKS if len(golden.data) < 3_000]
EVERY_BYTE_UP_TO = 4_096
OVERHEAD = 2**20
"""Bytes that an interpreter may need beside what the document counts."""
each = pytest.mark.parametrize
Read = Callable[[bytes], object]


def name_of(golden: Golden) -> str:
    """The name in a test report."""
    return golden.name


def append(data: bytes) -> int:
    """`append_chunk` of an index that follows the same rule, as far as the bytes say one."""
    return TimeBucketIndex(1 << min(data[3], 41) if len(data) > 3 else 1, data[2:3] != b"\x00").append_chunk(data)


def readers(golden: Golden) -> tuple[Read, ...]:
    """All ways in for these bytes."""
    return (describe_chunk, append) if golden.is_chunk else (TimeBucketIndex.from_bytes,)


def refuses(read: Read, data: bytes) -> bool:
    """True when the bytes are refused with the declared error; any other error is let through."""
    try:
        read(data)
    except CorruptBytes:
        return True
    return False


def places(golden: Golden) -> Iterator[int]:
    """Every byte of a small file; of a large one the first and the last thousand, and some between."""
    size = len(golden.data)
    if size <= EVERY_BYTE_UP_TO:
        return iter(range(size))
    return (at for at in range(size) if at < 1_000 or at >= size - 1_000 or at % 17 == 0)


@each("pattern", [0x01, 0x80, 0xFF])
@each("golden", GOLDEN, ids=name_of)
def test_no_byte_can_be_flipped_unseen(golden: Golden, pattern: int) -> None:
    """One bad sector must not become a message released early, late, or for another topic."""
    data = golden.data
    flipped = ((at, data[:at] + bytes([data[at] ^ pattern]) + data[at + 1 :]) for at in places(golden))
    assert not [at for at, bad in flipped for read in readers(golden) if not refuses(read, bad)]


@each("golden", GOLDEN, ids=name_of)
def test_no_byte_can_be_cut_off_unseen(golden: Golden) -> None:
    """A write that stopped half way leaves a front; nothing at all is what an encoder gives for no messages."""
    cuts = [golden.data[:at] for at in places(golden)]
    assert not [
        len(cut) for cut in cuts for read in readers(golden) if (cut or read is not append) and not refuses(read, cut)
    ]


@each("garbage", [b"\x00", b"\xff", b"C", bytes(8), b"\x01C\x01\x00" + bytes(8)])
@each("golden", GOLDEN, ids=name_of)
def test_nothing_can_be_put_behind_unseen(golden: Golden, garbage: bytes) -> None:
    """Two blobs that ran into each other are refused; half of them is not read."""
    for bad in (golden.data + garbage, golden.data * 2):
        assert all(refuses(read, bad) for read in readers(golden))


def test_no_bit_of_the_smallest_files_can_be_flipped_unseen() -> None:
    """Each bit, where there are few enough."""
    for golden in (golden for golden in GOLDEN if len(golden.data) < 150):
        for bit in range(8 * len(golden.data)):
            bad = bytearray(golden.data)
            bad[bit // 8] ^= 1 << bit % 8
            assert all(refuses(read, bytes(bad)) for read in readers(golden)), bit


def random_bytes(rng: random.Random) -> bytes:
    """Random bytes; some begin like a chunk or an index, and of these some have a right checksum."""
    body = rng.randbytes(rng.randrange(401))
    kind = rng.randrange(8)
    if kind < 2:
        return body
    if kind < 4:
        return bytes((1, rng.choice(b"CI"), rng.randrange(2))) + body
    if kind < 6:
        cut = rng.randrange(len(body) + 1)
        numbers = bytes(byte % 4 for byte in body[:cut]) if kind == 5 else body[:cut]
        return seal_chunk(numbers, [body[cut:]], rng.randrange(2), rng.randrange(42))
    numbers = b"".join(varint(rng.choice((0, 1, 2, 40, 400, 2**40))) for _ in range(rng.randrange(7)))
    return seal_index(numbers, [body], rng.randrange(2))


def test_a_hundred_thousand_random_strings_are_refused() -> None:
    """Foreign bytes, with and without a head and a checksum that fit: one error, no warning, no crash."""
    rng = random.Random(20_260_101)  # noqa: S311 - test data, the same in each run
    read_whole = 0
    for _ in range(100_000):
        data = random_bytes(rng)
        for read in (TimeBucketIndex.from_bytes, describe_chunk, append):
            if not refuses(read, data):
                read_whole += 1
                decode = read_index if read == TimeBucketIndex.from_bytes else read_chunk
                assert decode(data).runs == []
    # Sealed bytes that happen to be an empty chunk, or the settings of an empty index.
    assert read_whole < 400


def expected(data: bytes) -> list[MessageRun] | None:
    """What the document says is in a chunk; None when it says that it is none."""
    try:
        return joined(read_chunk(data).runs)
    except FormatError:
        return None


def check(data: bytes) -> bool:
    """Read a sealed chunk in all ways; what the document refuses is refused when it is decoded, the rest is right."""
    runs = expected(data)
    whole = index_for(data)
    if runs is not None:
        count = sum(last - first + 1 for _, _, first, last in runs)
        assert describe_chunk(data).count == append(data) == count
        assert content(TimeBucketIndex.from_bytes(whole)) == drain(TimeBucketIndex.from_bytes(whole)) == runs
        return True
    refuses(describe_chunk, data)
    refuses(append, data)
    refuses(lambda data: drain(TimeBucketIndex.from_bytes(data)), whole)
    assert refuses(lambda data: TimeBucketIndex.from_bytes(data).check_invariants(), whole)
    return False


@each("mutation", MUTATIONS)
def test_bytes_with_right_checksums_read_as_the_document_says_or_not_at_all(mutation: Mutation) -> None:
    """Checksums stop accidents, not authors: the parsing behind them has to stand alone."""
    rng = random.Random(mutation.__name__)  # noqa: S311 - test data, the same in each run
    results = [check(mutation(rng, rng.choice(SMALL).data)) for _ in range(RUNS)]
    assert results.count(False) > RUNS // 20


RUNS = 1_500


@each(("name", "data"), list(liars()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_chunk_that_lies_is_refused_when_it_is_read(name: str, data: bytes) -> None:
    """Each rule of the document, broken alone behind right checksums, is an error: no position comes out of it."""
    assert expected(data) is None, name
    whole = index_for(data)
    assert refuses(lambda data: TimeBucketIndex.from_bytes(data).check_invariants(), whole)
    assert refuses(lambda data: drain(TimeBucketIndex.from_bytes(data)), whole)


INDEX_LIARS = {
    "a strict index of a tolerant chunk": index_of(next(g.data for g in CHUNKS if g.name == "tolerant"), tick_ms=1024),
    "a tolerant index of a strict chunk": index_of(CHUNKS[0].data, tick_ms=512, strict=0),
    "a tolerant index of another width": index_of(
        next(g.data for g in CHUNKS if g.name == "tolerant"), tick_ms=512, strict=0
    ),
    "more chunks than allowed": index_of(CHUNKS[0].data, CHUNKS[1].data, max_chunks=1),
    "the same positions twice": index_of(CHUNKS[0].data, CHUNKS[0].data),
    "a tick of 0": index_of(tick_ms=0),
    "a tick above 2^41": index_of(tick_ms=2**41 + 1),
    "no chunks allowed": index_of(max_chunks=0),
    "neither strict nor tolerant": index_of(strict=2),
    "a number more": seal_index(varint(1) + varint(8) + varint(0) * 2, []),
    "2^62 chunks": seal_index(varint(1) + varint(8) + varint(2**62), []),
    "a chunk of no bytes": seal_index(varint(1) + varint(8) + varint(1) + varint(0), []),
    "an empty chunk": index_of(seal_chunk(b"", [], 1, 0)),
}


@each("name", INDEX_LIARS)
def test_an_index_that_lies_is_refused(name: str) -> None:
    """The same for the bytes around the chunks."""
    data = INDEX_LIARS[name]
    with pytest.raises(FormatError):
        read_index(data)
    assert refuses(lambda data: TimeBucketIndex.from_bytes(data).check_invariants(), data)


def test_an_index_of_too_many_chunks_is_refused_when_it_is_read() -> None:
    """Nobody has to ask for it, as with each other field of the head."""
    assert refuses(TimeBucketIndex.from_bytes, INDEX_LIARS["more chunks than allowed"])


def peak(read: Read, data: bytes) -> int:
    """Most bytes that were allocated at a time."""
    tracemalloc.start()
    try:
        refuses(read, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each(("name", "data", "allowed"), list(bombs()), ids=lambda value: value if isinstance(value, str) else "")
def test_memory_stays_within_what_the_document_states(name: str, data: bytes, allowed: int) -> None:
    """A row of a table, a few bytes long, must not take down the process that reads it."""
    whole = index_for(data)
    # Each of them reads the bytes first.
    reads: tuple[Read, ...] = (
        lambda data: TimeBucketIndex.from_bytes(data).check_invariants(),
        lambda data: drain(TimeBucketIndex.from_bytes(data)),
    )
    limit = allowed + 4 * len(data) + OVERHEAD
    assert max(peak(read, whole) for read in reads) <= limit, name
    assert max(peak(read, data) for read in (describe_chunk, append)) <= limit, name


def test_memory_of_many_ledger_tables_is_not_held_at_once() -> None:
    """A limit for each chunk would be none, were all tables of an index held unpacked."""
    name, data, allowed = next(bombs())
    assert name == "a table of 2^22 ledgers"
    assert peak(TimeBucketIndex.from_bytes, index_of(*[data] * 4)) <= allowed


LIMITED = """
import resource
from tests.support.hostile import bombs, index_for
from state import CorruptBytes, TimeBucketIndex
attacks = [(name, index_for(data)) for name, data, _ in bombs(2**31)]
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 600 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name, data in attacks:
    try:
        TimeBucketIndex.from_bytes(data).pop_due_runs(2**60)
    except CorruptBytes:
        pass
print(len(attacks))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process to its address space")
def test_a_process_of_limited_memory_survives_every_bomb() -> None:
    """The same as the system sees it, with what the codecs allocate in C."""
    done = subprocess.run([sys.executable, "-c", LIMITED], check=False, capture_output=True, text=True)  # noqa: S603 - our own interpreter, a constant
    assert done.stderr == ""
    assert int(done.stdout) == len(list(bombs()))

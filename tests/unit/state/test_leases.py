"""The fold over rows of leases: who owns what follows from the rows and their order, and from nothing else."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import CorruptBytes, LeaseKind, LeaseReplay, LeaseRow, OutOfRange, pack_leases, unpack_leases
from state.leases import MOST_PEERS

ANN, BOB, CID = 1, 2, 3
NAMES = {ANN: "ann", BOB: "bob", CID: "cid"}


def renew(session: int, beat: int, handed: int = 0) -> LeaseRow:
    """A renewal."""
    return LeaseRow(LeaseKind.RENEW, NAMES[session], session, beat, handed=handed, lease_ms=10_000)


def claim(session: int, slot: int, counter: int) -> LeaseRow:
    """A claim of a slot with the counter that was seen."""
    return LeaseRow(LeaseKind.CLAIM, NAMES[session], session, counter, slot)


def release(session: int, slot: int, counter: int) -> LeaseRow:
    """A release of a slot that the consumer has since `counter`."""
    return LeaseRow(LeaseKind.RELEASE, NAMES[session], session, counter, slot)


def got_to(session: int, slot: int, counter: int, handed: int | None) -> LeaseRow:
    """How far a consumer is in a slot in which it is behind; None: not behind any more."""
    return LeaseRow(LeaseKind.RENEW, NAMES[session], session, counter, slot, handed)


def leave(session: int, beat: int, handed: int | None = None) -> LeaseRow:
    """The end of a session; without `handed` somebody else says so."""
    return LeaseRow(LeaseKind.LEAVE, NAMES[session], session, beat, handed=handed)


def replay(*rows: LeaseRow, slots: int = 4) -> LeaseReplay:
    """The fold of these rows, all of which are accepted."""
    made = LeaseReplay(slots)
    assert made.apply(rows) == len(rows)
    return made


def owners(made: LeaseReplay) -> list[int | None]:
    """Owners of the slots."""
    return [slot.owner for slot in made.slots]


def test_of_two_claims_for_one_slot_the_first_in_the_log_wins() -> None:
    """Also when both stand in one version; the second one changes nothing."""
    made = replay(renew(ANN, 1), renew(BOB, 1), claim(BOB, 0, 0))
    assert made.apply([claim(ANN, 0, 0)]) == 0
    assert owners(made) == [BOB, None, None, None]


def test_a_renewal_before_a_claim_saves_every_slot_of_its_consumer() -> None:
    """One row a consumer, not a row a slot."""
    made = replay(renew(ANN, 1), claim(ANN, 0, 0), claim(ANN, 1, 0), renew(BOB, 1), renew(ANN, 2))
    assert made.apply([claim(BOB, 0, 1), claim(BOB, 1, 1)]) == 0
    assert made.apply([claim(BOB, 0, 2)]) == 1


def test_who_loses_a_slot_has_lost_its_session_and_all_slots() -> None:
    """A claim that fits says that the owner was silent for a lease; others may take the rest with what they saw."""
    made = replay(renew(ANN, 1), claim(ANN, 0, 0), claim(ANN, 1, 0), renew(BOB, 1), renew(CID, 1))
    assert made.apply([claim(BOB, 0, 1), claim(CID, 1, 1)]) == 2
    assert owners(made) == [BOB, CID, None, None]
    assert ANN not in made.peers
    assert made.apply([renew(ANN, 2), claim(ANN, 2, 0), release(ANN, 0, 1), leave(ANN, 2)]) == 0


def test_a_repeated_or_late_row_of_any_kind_changes_nothing() -> None:
    """A client that does not know whether its append landed may append once more."""
    rows = [renew(ANN, 1), claim(ANN, 0, 0), renew(ANN, 3), release(ANN, 0, 1), claim(ANN, 0, 3), leave(ANN, 3, 5)]
    for at in range(1, len(rows) + 1):
        made = replay(*rows[:at])
        before = pack_leases(made)
        assert made.apply(rows[:at]) == 0
        assert pack_leases(made) == before


def test_a_late_release_does_not_end_a_later_ownership() -> None:
    """The slot went round and came back; the release of the first time names a counter from before."""
    made = replay(renew(ANN, 1), claim(ANN, 0, 0), release(ANN, 0, 1), claim(ANN, 0, 2))
    assert made.apply([release(ANN, 0, 1)]) == 0
    assert owners(made)[0] == ANN


def test_renewals_that_landed_out_of_order_count_by_their_numbers() -> None:
    """The older one says nothing any more."""
    made = replay(renew(ANN, 5), claim(ANN, 0, 0))
    assert made.apply([renew(ANN, 4)]) == 0
    assert made.slots[0].counter == 1


def test_a_claim_of_somebody_who_never_renewed_is_void() -> None:
    """Nobody could know how long it holds."""
    assert LeaseReplay(4).apply([claim(ANN, 0, 0)]) == 0


def test_what_a_lost_owner_may_have_handed_out_is_owed_by_the_next() -> None:
    """Up to the place of its last renewal that was accepted; of a slot in which it was behind, up to where it said."""
    made = replay(renew(ANN, 1), claim(ANN, 0, 0), got_to(ANN, 0, 1, None), claim(ANN, 1, 0), got_to(ANN, 1, 1, 40))
    made.apply([renew(ANN, 2, handed=700), renew(BOB, 1), claim(BOB, 0, 2), claim(BOB, 1, 2)])
    assert [(slot.owner, slot.owed) for slot in made.slots[:2]] == [(BOB, 700), (BOB, 40)]


def test_a_message_that_kills_its_consumer_at_once_is_owed_from_its_second_victim_on() -> None:
    """The first one dies before a renewal names place 41; the second one has announced it before it handed it out."""
    made = replay(renew(ANN, 1, handed=40), claim(ANN, 0, 0), got_to(ANN, 0, 1, None), renew(BOB, 1), claim(BOB, 0, 1))
    assert made.slots[0].owed == 40
    made.apply([got_to(BOB, 0, 2, 41), renew(CID, 1), claim(CID, 0, 2)])
    assert (made.slots[0].owner, made.slots[0].owed) == (CID, 41)


def test_what_is_owed_stays_owed_until_an_owner_has_paid() -> None:
    """An owner that dies, or gives the slot back, before it nacked leaves that to the next one."""
    made = replay(renew(ANN, 1), claim(ANN, 0, 0), got_to(ANN, 0, 1, 9), renew(BOB, 1), claim(BOB, 0, 1))
    made.apply([release(BOB, 0, 2), renew(CID, 1), claim(CID, 0, 3)])
    assert (made.slots[0].owner, made.slots[0].owed) == (CID, 9)
    made.apply([got_to(CID, 0, 4, 12)])
    assert (made.slots[0].handed, made.slots[0].owed) == (12, None)


def test_who_leaves_without_having_paid_leaves_what_is_owed() -> None:
    """Closed before its nacks were appended."""
    made = replay(renew(ANN, 1), claim(ANN, 0, 0), got_to(ANN, 0, 1, 9), renew(BOB, 1), claim(BOB, 0, 1))
    assert made.apply([leave(BOB, 1, handed=50)]) == 1
    assert (made.slots[0].owner, made.slots[0].owed) == (None, 9)


def test_only_the_latest_sessions_that_ended_are_remembered() -> None:
    """A log of years does not make the snapshot grow."""
    made = LeaseReplay(1)
    for session in range(300):
        name = LeaseRow(LeaseKind.RENEW, "c", session, 1, lease_ms=10_000)
        assert made.apply([name, LeaseRow(LeaseKind.LEAVE, "c", session, 1)]) == 2
    assert list(made.gone) == list(range(300 - 256, 300))


def test_nothing_is_owed_of_a_slot_that_was_released_or_left() -> None:
    """Its owner has waited for what was outstanding, or has closed and leaves it to the next one as it is."""
    made = replay(renew(ANN, 1, 50), claim(ANN, 0, 0), got_to(ANN, 0, 1, None), claim(ANN, 1, 0))
    made.apply([release(ANN, 0, 1), leave(ANN, 1, handed=60)])
    assert owners(made) == [None] * 4
    assert [slot.owed for slot in made.slots] == [None] * 4


def test_others_end_the_session_of_a_silent_consumer_unless_it_spoke_in_between() -> None:
    """They name the renewal that they saw last."""
    made = replay(renew(ANN, 1), renew(ANN, 2))
    assert made.apply([leave(ANN, 1)]) == 0
    assert made.apply([leave(ANN, 2)]) == 1
    assert made.peers == {}


def test_rows_that_no_consumer_writes_are_void() -> None:
    """Other writers can append to the table, too."""
    good = [renew(ANN, 1), claim(ANN, 1, 0), release(ANN, 1, 1)]
    of_all: list[dict[str, Any]] = [{"session": -1}, {"counter": -1}, {"counter": None}, {"kind": "ack"}]
    of_renewals: list[dict[str, Any]] = [{"lease_ms": lease} for lease in (0, 999, 600_001)]
    of_renewals += [{"handed": -1}, {"priority": -1}]
    bad = [replace(row, **change) for row in good for change in of_all]
    bad += [replace(good[0], **change) for change in of_renewals]
    bad += [replace(row, slot=slot) for row in good[1:] for slot in (-1, 4, None)]
    made = LeaseReplay(4)
    assert made.apply(bad) == 0
    assert made.apply(good) == 3


@pytest.mark.parametrize("slots", [0, 4097])
def test_a_number_of_slots_outside_its_range_is_refused(slots: int) -> None:
    """1 to 4096."""
    with pytest.raises(OutOfRange):
        LeaseReplay(slots)


ROWS = st.lists(
    st.builds(
        LeaseRow,
        kind=st.sampled_from(LeaseKind),
        consumer=st.sampled_from(["ann", "bob", "żółw"]),
        session=st.integers(0, 3),
        counter=st.integers(0, 6),
        slot=st.one_of(st.none(), st.integers(0, 2)),
        handed=st.one_of(st.none(), st.integers(0, 9)),
        lease_ms=st.just(10_000),
    ),
    max_size=60,
)


@given(ROWS, st.integers(0, 60))
def test_who_starts_from_a_snapshot_comes_to_the_same_owners(rows: list[LeaseRow], cut: int) -> None:
    """Whatever the rows say and wherever the log is cut; equal replays give equal bytes."""
    whole, first = LeaseReplay(3), LeaseReplay(3)
    whole.apply(rows)
    first.apply(rows[:cut])
    late = unpack_leases(pack_leases(first))
    late.apply(rows[cut:])
    assert pack_leases(late) == pack_leases(whole)
    assert (late.slots, late.peers, list(late.gone)) == (whole.slots, whole.peers, list(whole.gone))


@given(ROWS)
def test_whatever_is_in_the_log_owners_are_there_and_counters_never_fall(rows: list[LeaseRow]) -> None:
    """An owner is a consumer that is known; a claim can never fit twice."""
    made, before = LeaseReplay(3), [0, 0, 0]
    for row in rows:
        made.apply([row])
        counters = [slot.counter for slot in made.slots]
        assert all(new >= old for new, old in zip(counters, before, strict=True))
        assert all(slot.owner is None or slot.owner in made.peers for slot in made.slots)
        assert all(slot.since <= slot.counter for slot in made.slots)
        before = counters


GOLDEN = (
    "014c5c9906230402010801010203000101030102001000270101070001000301010201000001010301000001010301000001013c00000001"
    "013d000000010101010000010001626f62636964"
)


def test_golden_bytes_of_leases_are_read_as_they_were_written() -> None:
    """A consumer of a later version starts from what an earlier one wrote."""
    made = replay(renew(ANN, 1, 50), claim(ANN, 0, 0), got_to(ANN, 0, 1, None), renew(BOB, 3, 7), claim(BOB, 1, 0))
    made.apply([renew(ANN, 2, 60), renew(CID, 1), claim(CID, 0, 2)])
    assert pack_leases(made).hex() == GOLDEN
    assert pack_leases(unpack_leases(bytes.fromhex(GOLDEN))).hex() == GOLDEN


def test_damaged_bytes_of_leases_are_refused() -> None:
    """Each byte counts, and so does each that is missing."""
    data = bytes.fromhex(GOLDEN)
    for at in range(len(data)):
        with pytest.raises(CorruptBytes):
            unpack_leases(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptBytes):
            unpack_leases(data[:at])


def test_bytes_that_make_no_sense_are_refused_though_their_checksum_fits() -> None:
    """No slot; an owner that is not there; a name that is not UTF-8."""
    good = bytes.fromhex(GOLDEN)[6:]
    for body in (b"\x00" + good[1:], good.replace(bytes([1, 2, 1, 0, 0]), bytes([1, 9, 1, 0, 0])), good[:-1] + b"\xff"):
        data = struct.pack("<B1sI", 1, b"L", zlib.crc32(body, zlib.crc32(b"\x01"))) + body
        with pytest.raises(CorruptBytes):
            unpack_leases(data)


class Counted(LeaseReplay):
    """A replay that counts how often it looks through all slots."""

    looks = 0

    def owned(self, session: int) -> list[int]:
        """The slots of a consumer."""
        self.looks += 1
        return super().owned(session)


def test_renewals_of_consumers_without_a_slot_do_not_look_through_the_slots() -> None:
    """A million of them, with as many slots as there may be, took ten minutes of settle and of each consumer."""
    replay = Counted(slots=9)
    replay.apply([renew(ANN, 1), *(claim(ANN, slot, 0) for slot in range(9))])
    assert replay.apply(renew(session, beat) for session in (BOB, CID) for beat in range(1, 50)) == 98
    assert replay.looks == 0
    assert replay.apply([renew(ANN, 2), claim(BOB, 0, 2), renew(BOB, 50), renew(CID, 50)]) == 4
    assert replay.looks == 3
    assert (replay.owned(BOB), replay.slots[0].counter) == ([0], 4)


def test_a_million_sessions_leave_room_for_those_that_live() -> None:
    """Rows are anybody's: what is remembered of them has a bound, and who has slots keeps them."""
    replay = LeaseReplay(4)

    def joins(session: int, beat: int = 1) -> LeaseRow:
        return LeaseRow(LeaseKind.RENEW, "c", session, beat, lease_ms=10_000)

    assert replay.apply([joins(1), LeaseRow(LeaseKind.CLAIM, "c", 1, 0, 0)]) == 2
    assert replay.apply(joins(session) for session in range(2, 3 * MOST_PEERS)) > 0
    assert len(replay.peers) <= MOST_PEERS
    assert replay.owned(1) == [0]
    assert replay.apply([joins(7 * MOST_PEERS)]) == 1
    assert 7 * MOST_PEERS in replay.peers
    assert unpack_leases(pack_leases(replay)).peers == replay.peers

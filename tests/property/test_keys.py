"""What becomes of messages with the key of one that waits, against a model that takes one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from state import keys as state_keys
from state.buckets import MAX_TIME
from state.keys import NOBODY, KeyHashes, Waiting, WaitingKeys, places_of
from state.unique import NONE, Held, Mode, last_times, latest_times, refused, replaced

SALT = b"sixteen bytes or"
LONGEST, OPEN = 20, 40


@dataclass
class Message:
    """A message as the model knows it.

    Attributes:
        zone: of the recipient, whose window is open each third span of `OPEN`.
        asks: whether it may replace others, where not all may.
    """

    key: str
    published: int
    planned: int
    zone: int | None = None
    asks: bool = True
    place: int = NONE
    latest: int = MAX_TIME
    due: int = 0

    def until(self, bound: int) -> int:
        """When it is due if it may be put off to a time; the window comes last."""
        at = min(self.planned, bound)
        if self.zone is None:
            return at
        opens = next(span for span in range(at // OPEN, at // OPEN + 3) if span % 3 == self.zone) * OPEN
        return max(at, opens)


@dataclass
class Model:
    """What waits, in the order of arrival."""

    mode: Mode
    asked: bool
    waiting: list[Message] = field(default_factory=list)

    def batch(self, rows: list[Message], now: int, taken: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Which rows are refused, by number, and which places are replaced, by the number of the row that does it."""
        gone, said = list[int](), list[tuple[int, int]]()
        for number, row in enumerate(rows):
            own = [each for each in self.waiting if each.key == row.key]
            if self.mode == Mode.DROP:
                if any(each.due > now for each in own):
                    gone.append(number)
                else:
                    self.waiting.append(row)
                continue
            own = [each for each in own if each.due > taken and (row.asks or not self.asked)]
            if self.mode == Mode.EXTEND:
                begins = max(row.due, row.published + LONGEST)
                # A window may have put off what waits behind the latest time of its chain.
                ends = (each.latest if each.latest > taken else each.due for each in own)
                row.latest = min(ends, default=begins)
                row.due = row.until(row.latest) if own else row.due
            said += [(each.place, number) for each in own]
            self.waiting = [each for each in self.waiting if each not in own] + [row]
        return gone, said


def hashes(rows: list[Message]) -> KeyHashes:
    """Their keys."""
    return KeyHashes.of([row.key.encode() for row in rows], SALT)


def check_blocks(known: WaitingKeys) -> None:
    """Each block is sorted and has its own hashes."""
    for number, block in enumerate(known._blocks):
        assert (block.words[1:] >= block.words[:-1]).all()
        assert not known._bits or (block.words >> np.uint64(64 - known._bits) == number).all()


@dataclass
class Known:
    """The same by whole arrays."""

    mode: Mode
    asked: bool
    waiting: WaitingKeys

    def batch(self, rows: list[Message], now: int, taken: int) -> tuple[list[int], list[tuple[int, int]], list[int]]:
        """The same, and when rows are due."""
        found, due = hashes(rows), np.array([row.due for row in rows], np.int64)
        published = np.array([row.published for row in rows], np.int64)
        places = np.array([row.place for row in rows], np.int64)
        held = Held.of(found, self.waiting)
        held = held.only(held.waiting.due > (now if self.mode == Mode.DROP else taken))
        gone, stays, latest = NOBODY, np.arange(len(rows)), np.full(len(rows), MAX_TIME)
        no, said = np.zeros(len(rows), np.bool_), list[tuple[int, int]]()
        if self.mode == Mode.DROP:
            refusal = refused(found, due, held, now)
            no, stays = refusal.flags, np.flatnonzero(~refusal.flags)
            for number in np.flatnonzero(no).tolist():
                by, place = int(refusal.older[number]), int(refusal.place[number])
                assert (by == NONE) != (place == NONE)
                assert by == NONE or (rows[by].key == rows[number].key and by < number and not no[by])
        else:
            if self.mode == Mode.EXTEND:
                held = replace(held, waiting=replace(held.waiting, latest=last_times(held.waiting, taken)))
                latest, bound = latest_times(found, due, published, held, taken, LONGEST)
                due = np.array([row.until(each) for row, each in zip(rows, bound.tolist(), strict=True)], np.int64)
            asks = np.array([row.asks for row in rows], np.bool_) if self.asked else None
            change = replaced(found, due, held, taken, asks)
            goes = change.by != NONE
            gone, stays = held.waiting.take(goes), change.newest
            said = list(zip(gone.places.tolist(), change.by[goes].tolist(), strict=True))
            said += zip(places[change.arrivals].tolist(), change.by_arrivals.tolist(), strict=True)
        new = Waiting(found.take(stays), places[stays], due[stays], latest[stays])
        self.waiting.change(gone, new, now)
        check_blocks(self.waiting)
        return np.flatnonzero(no).tolist(), said, due.tolist()


zones = st.sampled_from((None, None, 0, 1, 2))
sent = st.tuples(st.sampled_from("aaabc"), st.integers(0, 20), st.integers(0, 80), zones, st.booleans())
batches = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10), st.lists(sent, max_size=12)), max_size=8)


@given(rule=st.sampled_from([*((mode, False) for mode in Mode), (Mode.REPLACE, True)]), given_batches=batches)
def test_the_arrays_decide_as_one_message_after_the_other(
    rule: tuple[Mode, bool], given_batches: list[tuple[int, int, list[tuple[str, int, int, int | None, bool]]]]
) -> None:
    """Batches with keys that meet within them and across them, at any pace of the clock, in the zones of recipients.

    All messages replace others, or only those that ask for it.
    """
    (mode, _), now, count = rule, 100, 0
    model, known = Model(*rule), Known(*rule, WaitingKeys(bounded=mode == Mode.EXTEND))
    taken = now
    for passed, ahead, messages in given_batches:
        now += passed
        taken = max(taken, now + ahead)
        rows = [
            Message(key, now - age, max(now - age, now + delay - 20), zone, asks=asks)
            for key, age, delay, zone, asks in messages
        ]
        for row in rows:
            row.place, row.due = count, row.until(MAX_TIME)
            count += 1
        gone, said, due = known.batch([Message(**vars(row)) for row in rows], now, taken)
        wanted_gone, wanted_said = model.batch(rows, now, taken)
        assert (gone, sorted(said)) == (wanted_gone, sorted(wanted_said))
        assert due == [row.due for row in rows]
        # What may be taken is looked at by nobody who replaces.
        until = now if mode == Mode.DROP else taken
        _, there = known.waiting.find(hashes([Message(key, 0, 0) for key in "abcd"]))
        columns = (there.places.tolist(), there.due.tolist(), there.latest.tolist())
        found = {place: (at, latest) for place, at, latest in zip(*columns, strict=True) if at > until}
        assert found == {row.place: (row.due, row.latest) for row in model.waiting if row.due > until}


changes = st.lists(
    st.tuples(st.lists(st.integers(0, 60), max_size=30), st.lists(st.integers(0, 200), max_size=30)), max_size=12
)


@given(changes)
def test_blocks_are_divided_and_find_what_they_have(given_changes: list[tuple[list[int], list[int]]]) -> None:
    """With blocks of four messages: what was put in and is not due is found, and what was taken out is not."""
    block, state_keys._BLOCK = state_keys._BLOCK, 4
    try:
        known, there, place, now = WaitingKeys(), dict[int, tuple[str, int]](), 0, 0
        for going, coming in given_changes:
            now += 10
            gone = [each for each in going if each in there]
            new = {place + number: (str(each % 90), now - 5 + each % 40) for number, each in enumerate(coming)}
            place += len(coming)
            known.change(_messages({each: there[each] for each in gone}), _messages(new), now)
            there = {p: each for p, each in (there | new).items() if p not in gone and each[1] > now}
            check_blocks(known)
            numbers, found = known.find(KeyHashes.of([str(each).encode() for each in range(90)], SALT))
            waits = found.due > now
            pairs = zip(found.places[waits].tolist(), numbers[waits].tolist(), found.due[waits].tolist(), strict=True)
            assert {p: (str(number), due) for p, number, due in pairs} == there
    finally:
        state_keys._BLOCK = block


def _messages(found: dict[int, tuple[str, int]]) -> Waiting:
    keys = KeyHashes.of([key.encode() for key, _ in found.values()], SALT)
    due = np.array([due for _, due in found.values()], np.int64)
    return Waiting(keys, np.array(list(found), np.int64), due, np.full(len(due), MAX_TIME))


def test_places_are_in_the_order_of_positions() -> None:
    """Ledger first."""
    places = places_of(np.array([0, 0, 1]), np.array([0, (1 << 31) - 1, 0]))
    assert (np.diff(places) > 0).all()

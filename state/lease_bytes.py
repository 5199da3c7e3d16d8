"""What a log of leases says up to some row, as bytes: newcomers start from them, so the rows before may be deleted."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from state.columns import Reader, pack_column, varint
from state.errors import CorruptBytes
from state.leases import MAX_NUMBER, REMEMBERED, LeasedSlot, LeaseReplay, Peer
from state.slots import MAX_SLOTS

VERSION = 1
_MAGIC = b"L"
_HEAD = struct.Struct("<B1sI")
"""version, magic, CRC-32 of version and body."""
_MAX_PEERS = 1 << 20


def pack_leases(replay: LeaseReplay) -> bytes:
    """The replay as bytes (`docs/format.md`, Leases). Equal replays give equal bytes. O(slots + consumers)."""
    sessions = sorted(replay.peers)
    peers = [replay.peers[session] for session in sessions]
    names = [peer.consumer.encode("utf-8", "surrogatepass") for peer in peers]
    place = {session: number + 1 for number, session in enumerate(sessions)}
    slots = replay.slots
    body = b"".join(
        [
            varint(len(slots)),
            varint(len(peers)),
            varint(len(replay.gone)),
            varint(replay.changes),
            _column(sessions),
            _column([peer.priority for peer in peers]),
            _column([peer.beat for peer in peers]),
            _column([peer.lease_ms for peer in peers]),
            _column([peer.handed for peer in peers]),
            _column([len(name) for name in names]),
            _column([place[slot.owner] if slot.owner is not None else 0 for slot in slots]),
            _column([slot.counter for slot in slots]),
            _column([slot.since for slot in slots]),
            _column([slot.handed for slot in slots]),
            _column([0 if slot.owed is None else slot.owed + 1 for slot in slots]),
            _column([slot.behind for slot in slots]),
            _column(list(replay.gone)),
            *names,
        ]
    )
    return _HEAD.pack(VERSION, _MAGIC, _checksum(body)) + body


def unpack_leases(data: bytes) -> LeaseReplay:
    """The replay in `data`. O(slots + consumers).

    Raises:
        CorruptBytes: truncated, altered, foreign, or of an unknown version.
    """
    reader = Reader(bytes(data), "leases")
    version, magic, checksum = _HEAD.unpack(reader.take(_HEAD.size))
    if version != VERSION or magic != _MAGIC:
        raise CorruptBytes("leases", f"version {version}, kind {magic!r}; known: version {VERSION}, kind {_MAGIC!r}")
    if checksum != _checksum(reader.data[_HEAD.size :]):
        raise CorruptBytes("leases", "checksum does not fit")
    slots, peers, gone = reader.varint(MAX_SLOTS), reader.varint(_MAX_PEERS), reader.varint(REMEMBERED)
    changes = reader.varint(MAX_NUMBER)
    of_peers = [reader.column(peers).tolist() for _ in range(6)]
    of_slots = [reader.column(slots).tolist() for _ in range(6)]
    ended = reader.column(gone).tolist()
    names = [_text(reader.take(size)) for size in of_peers.pop()]
    reader.end()
    sessions = of_peers[0]
    if slots == 0 or max(of_slots[0]) > peers or len(set(sessions)) < peers or not set(of_slots[5]) <= {0, 1}:
        raise CorruptBytes("leases", "an owner that is not there, a session twice, or no slot")
    replay, owners = LeaseReplay(slots), [None, *sessions]
    for session, name, priority, beat, lease_ms, handed in zip(sessions, names, *of_peers[1:], strict=True):
        replay.peers[session] = Peer(name, priority, beat, lease_ms, handed)
    replay.slots = [
        LeasedSlot(owners[owner], counter, since, handed, owed - 1 if owed else None, bool(behind))
        for owner, counter, since, handed, owed, behind in zip(*of_slots, strict=True)
    ]
    replay.gone, replay.changes = dict.fromkeys(ended), changes
    return replay


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptBytes("leases", "a name is not UTF-8") from error


def _column(values: list[int]) -> bytes:
    return pack_column(np.array(values, np.int64))


def _checksum(body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(bytes([VERSION])))

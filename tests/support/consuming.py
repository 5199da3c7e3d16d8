"""Steps of stream tests in which consumers say something, and what settle makes of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from pipeline.delta import deltars
from schemas import CONSUMER_EVENTS, CURSOR_HEAD, CURSOR_LEASES, CURSORS, DELIVERIES, HELD, SUBSCRIPTIONS
from state import Condition, LeaseReplay, Outstanding
from state.lease_bytes import unpack_leases
from tests.support.stream import Step, World, at

Position = tuple[int, int]


def acknowledging(topic: str, name: str, tick_ms: int = 1, kind: str = "exclusive", **policies: object) -> Step:
    """Register a subscription whose consumers acknowledge."""

    def step(world: World) -> None:
        texts = {"ack": "true"} | {policy: str(value) for policy, value in policies.items()}
        line = {"topic": topic, "subscription": name, "type": kind, "start": "latest", "tick_ms": tick_ms}
        lines = [line | {"active": True, "policies": texts}]
        deltars.append(world.warehouse.root, SUBSCRIPTIONS, deltars.rows_of(SUBSCRIPTIONS, lines))

    return step


def said(*rows: dict[str, object]) -> Step:
    """Append rows of `consumer_events`, in one commit."""

    def step(world: World) -> None:
        deltars.append(world.warehouse.root, CONSUMER_EVENTS, deltars.rows_of(CONSUMER_EVENTS, list(rows)))

    return step


def says(kind: str, *payloads: str, name: str = "s", topic: str = "t", **columns: object) -> Step:
    """A consumer names deliveries, found by their payloads; the last one of each."""

    def step(world: World) -> None:
        found = {bytes(row["payload"]).decode(): row for row in deliveries(world, name, topic)}
        said(*(_event(kind, found[each].asDict(), columns) for each in payloads))(world)

    return step


def _event(kind: str, row: dict[str, object], columns: dict[str, object]) -> dict[str, object]:
    copied = {name: row[name] for name in ("topic", "subscription", "life", "ledger_id", "redelivery_count")}
    return {
        "kind": kind,
        **copied,
        "first_entry": row["entry_id"],
        "last_entry": row["entry_id"],
        "at": at(0),
        **columns,
    }


def deliveries(world: World, name: str = "s", topic: str = "t") -> list:  # type: ignore[type-arg] # rows of Spark
    """What a subscription was given, in the order of delivery."""
    rows = [row for row in world.rows(DELIVERIES) if (row["topic"], row["subscription"]) == (topic, name)]
    return sorted(rows, key=lambda row: (row["batch_id"], row["sequence"]))


def received(world: World, name: str = "s", topic: str = "t") -> list[tuple[str, int]]:
    """Payload and redelivery count of each delivery, in order."""
    return [(bytes(row["payload"]).decode(), row["redelivery_count"]) for row in deliveries(world, name, topic)]


@dataclass(frozen=True)
class Standing:
    """What `cursors` says of an incarnation."""

    outstanding: Outstanding
    leases: LeaseReplay

    def open(self, *conditions: Condition) -> dict[Position, int]:
        """Positions in some conditions, with their redelivery counts."""
        return {
            (ledger, entry): held.cell.redelivery_count
            for held in self.outstanding.held(*(conditions or (Condition.OUTSTANDING, Condition.WAITING)))
            for ledger, first, last in held.positions.runs()
            for entry in range(first, last + 1)
        }


def standing(world: World, topic: str = "t", name: str = "s", life: int = 1) -> Standing:
    """The newest rows of `cursors` for an incarnation."""
    newest: dict[int, tuple[int, bytes | None]] = defaultdict(lambda: (-1, None))
    for row in world.rows(CURSORS):
        if (row["topic"], row["subscription"], row["life"]) == (topic, name, life):
            newest[row["block"]] = max(newest[row["block"]], (row["batch_id"], row["bytes"]), key=lambda each: each[0])
    bytes_of = {block: bytes(data) for block, (_, data) in newest.items() if data is not None}
    blocks = {block: data for block, data in bytes_of.items() if block >= 0}
    return Standing(Outstanding.restore(bytes_of[CURSOR_HEAD], blocks), unpack_leases(bytes_of[CURSOR_LEASES]))


def held_back(world: World) -> Counter[str]:
    """How many positions are held of each subscription that has some."""
    found = Counter[str]()
    for row in world.rows(HELD):
        found[row["subscription"]] += row["last_entry"] - row["first_entry"] + 1
    return found


def payloads_open(world: World, name: str = "s", topic: str = "t") -> set[str]:
    """What is outstanding or waiting."""
    places = standing(world, topic, name).open()
    found = deliveries(world, name, topic)
    return {bytes(row["payload"]).decode() for row in found if (row["ledger_id"], row["entry_id"]) in places}

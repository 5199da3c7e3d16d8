"""Inputs that no producer should send: each ends in `deliveries` or in `rejected`, and nothing stops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from pipeline.delta.views import rejected
from schemas import COMMANDS, CONSUMER_EVENTS, DELIVERIES, INBOX, MESSAGES, SUBSCRIPTIONS
from tests.support.spark import session
from tests.support.stream import World, advance, append, check, delivered, message, restart, subscribe
from tests.support.worlds import Play

T0 = 1_700_000_000_000
MICROS = 1_000
LONGEST = 2**63 - 1

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("message_key", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("publish_time", pa.timestamp("us", "UTC")),
        ("deliver_at", pa.timestamp("us", "UTC")),
        ("deliver_after_ms", pa.int64()),
        ("payload", pa.binary()),
    ]
)
YEAR_9999, YEAR_1900, YEAR_10000 = 253_402_300_799_999_999, -2_208_988_800_000_000, 253_402_300_800_000_000

GOOD: list[dict[str, Any]] = [
    {"topic": "t", "payload": b"micros", "deliver_at": T0 * MICROS + 1},
    {"topic": "t", "payload": b"1900", "deliver_at": YEAR_1900},
    {"topic": "t", "payload": b"published in 1900", "publish_time": YEAR_1900},
    {"topic": "t", "payload": None},
    {"topic": "t", "payload": b"", "message_key": "\0\u2028\x85", "properties": [("k", None)]},
    {"topic": "💥 \n'\"`;--", "payload": b"unicode"},
]
BAD: list[dict[str, Any]] = [
    {},
    {"topic": ""},
    {"topic": "t", "deliver_at": YEAR_9999},
    {"topic": "t", "deliver_at": YEAR_10000},
    {"topic": "t", "deliver_at": LONGEST},
    {"topic": "t", "deliver_at": -LONGEST},
    {"topic": "t", "publish_time": LONGEST},
    {"topic": "t", "publish_time": -LONGEST, "deliver_at": LONGEST},
    {"topic": "t", "publish_time": YEAR_9999},
    {"topic": "t", "deliver_after_ms": LONGEST},
    {"topic": "t", "deliver_after_ms": -LONGEST},
    {"topic": "t", "payload": bytes(10 * 1024 * 1024)},
]


def send_from_outside(*rows: dict[str, Any]) -> Any:  # noqa: ANN401 - a step
    """Append to the inbox with a writer that knows nothing of Spark."""

    def step(world: World) -> None:
        full = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
        path = world.warehouse.path(INBOX)
        write_deltalake(path, pa.Table.from_pylist(full, SCHEMA), mode="append", schema_mode="merge")

    return step


LINE = "'t' AS topic, CAST(X'FF' AS STRING) AS subscription, 'shared' AS type, 'latest' AS start, 1L AS tick_ms"
NO_TEXTS = {
    INBOX.name: [
        "'t' AS topic, CAST(X'FF' AS STRING) AS message_key",
        "CAST(X'74E282' AS STRING) AS topic, CAST(NULL AS STRING) AS message_key",
    ],
    CONSUMER_EVENTS.name: ["'t' AS topic, CAST(X'FF' AS STRING) AS subscription, CAST(X'FF' AS STRING) AS kind"],
    COMMANDS.name: ["'t' AS topic, CAST(X'FF' AS STRING) AS command_id, 'cancel' AS kind"],
    SUBSCRIPTIONS.name: [f"{LINE}, map('ack', CAST(X'FF' AS STRING)) AS policies, true AS active"],
}
"""Rows with texts that are no UTF-8, by table."""


def append_no_texts(world: World) -> None:
    """Spark writes bytes as a text when it is told to."""
    for name, rows in NO_TEXTS.items():
        frame = session().sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))
        frame.write.format("delta").mode("append").save(f"{world.warehouse.root}/{name}")


def test_poisoned_rows_are_delivered_or_rejected_and_the_counts_add_up(play: Play) -> None:
    """Far times, empty rows, odd names, texts that are none, a payload of 10 MB beside good rows; then life goes on."""
    sent = [*GOOD, *BAD]

    def nothing_vanished(world: World) -> None:
        assert len(world.rows(MESSAGES)) == len(GOOD)
        # Besides, a line of the registry that nobody can follow.
        assert rejected(world.warehouse.within(session())).count() == len(BAD) + len(NO_TEXTS[INBOX.name]) + 1
        assert len(GOOD) + len(BAD) == len(sent)
        topics = Counter(row["topic"] for row in world.rows(DELIVERIES))
        assert topics == Counter(row["topic"] for row in GOOD)

    play(
        [
            subscribe("t", "s"),
            subscribe("💥 \n'\"`;--", "other"),
            advance(T0 - 1),
            send_from_outside(*sent),
            append_no_texts,
            advance(T0 + 1),
            check(nothing_vanished),
            restart(),
            append(message("fine", topic="💥 \n'\"`;--", after=0)),
            advance(T0 + 2),
            delivered("unicode", "fine", subscription="other"),
        ],
    )

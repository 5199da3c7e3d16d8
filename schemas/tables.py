"""The tables of a warehouse: columns, types, nullability and Delta properties.

Times are UTC timestamps, ids and counts are 64-bit integers. Payloads and other binary columns come last: Delta keeps
statistics for the leading columns only, and has none to keep for binary ones.
"""

from schemas import forgetting
from schemas.columns import BYTES, FLAG, LONG, TEXT, TEXT_MAP, TIME, Columns, listed
from schemas.contract import Table
from schemas.recurring import CALENDARS, SCHEDULES
from schemas.uniqueness import OLDER, REPLACED, WAS_REPLACED

LISTENER = Columns.of(("name", TEXT), ("life", LONG), ("tick_ms", LONG), optional=("name", "life", "tick_ms"))
"""Whom a row of `segments` is for: a subscription, in which of its lives (1 is the first), with its tick in ms."""


ROUND = "coalesce(round, redelivery_count)"
"""The round of a row of a table that has both columns, in SQL."""


# Producers append with any Delta writer. Nothing here may raise the writer protocol: delta-rs refuses tables with
# clustering, column defaults, row tracking, identity columns or in-commit timestamps. All columns may be NULL:
# a row without a topic is refused with a reason, it must not fail the append of its neighbours.
INBOX = Table(
    "inbox",
    Columns.of(
        ("topic", TEXT),
        ("message_key", TEXT),
        ("properties", TEXT_MAP),
        ("publish_time", TIME),
        ("deliver_at", TIME),
        ("deliver_after_ms", LONG),
        ("payload", BYTES),
        ("producer_name", TEXT),
        ("sequence_id", LONG),
        optional=(
            "topic", "message_key", "properties", "publish_time", "deliver_at", "deliver_after_ms", "payload",
            "producer_name", "sequence_id",
        ),
    ),
    writer="producers",
)  # fmt: skip
IDENTITY = ("producer_name", "sequence_id")
"""By which a producer knows its message: both are NULL where it did not say so. They travel with the message. In
`inbox` they stand last, because producers may name no columns."""

SUBSCRIPTIONS = Table(
    "subscriptions",
    Columns.of(
        ("topic", TEXT),
        ("subscription", TEXT),
        ("type", TEXT),
        ("start", TEXT),
        ("tick_ms", LONG),
        ("policies", TEXT_MAP),
        ("active", FLAG),
        optional=("policies",),
    ),
    writer="users",
)

MESSAGES = Table(
    "messages",
    Columns.of(
        ("topic", TEXT),
        ("ledger_id", LONG),
        ("entry_id", LONG),
        ("message_key", TEXT),
        ("properties", TEXT_MAP),
        ("publish_time", TIME),
        ("deliver_at", TIME),
        ("due_time", TIME),
        ("put_off_from", TIME),
        ("latest_due", TIME),
        ("parked", FLAG),
        ("batch_id", LONG),
        ("producer_name", TEXT),
        ("sequence_id", LONG),
        ("payload", BYTES),
        optional=("message_key", "properties", "deliver_at", "put_off_from", "latest_due", *IDENTITY, "payload"),
    ),
    writer="ingest",
    properties=forgetting.A_DAY,
)

# Marker rows (kind `marker`) carry what ingest must know after a restart, whatever became of its checkpoint:
# how far parked messages were loaded, which ledger ids are used, and since which ledger a subscription listens
# (`first_ledger`, from entry `count` on; `LEFT` when it left). `marker` orders them. `life` is the number of the life
# that begins or ends (of older versions 0, or what a seek gave). A subscription that comes back under its name begins
# another life; rows name theirs, so that what an earlier one left behind is told apart (decision 0110).
# Rows of kind `retry` are settle's: positions that come again, or at another time, for one subscription, with the
# redelivery count that they will be delivered with, their round, and why (`cause`). In all other rows the three are
# NULL. The round of a position grows by one each time it is put into the index; where it is NULL, here and in the
# tables that follow, it is the redelivery count: nobody ever gave the position another due time.
LEFT = -1
"""The `first_ledger` of a marker that says that a subscription left."""
SEGMENTS = Table(
    "segments",
    Columns.of(
        ("topic", TEXT),
        ("subscriptions", listed(LISTENER.json())),
        ("segment_start", TIME),
        ("count", LONG),
        ("first_due", TIME),
        ("last_due", TIME),
        ("kind", TEXT),
        ("loaded_until", TIME),
        ("next_ledger", LONG),
        ("first_ledger", LONG),
        ("marker", LONG),
        ("batch_id", LONG),
        ("redelivery_count", LONG),
        ("round", LONG),
        ("cause", TEXT),
        ("chunk", BYTES),
        optional=(
            "segment_start", "first_due", "last_due", "loaded_until", "next_ledger", "first_ledger", "marker",
            "redelivery_count", "round", "cause", "chunk",
        ),
    ),
    writer="ingest",
    properties=forgetting.A_DAY,
)  # fmt: skip

REDELIVERY = Table(
    "redelivery",
    Columns.of(
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("ledger_id", LONG),
        ("first_entry", LONG),
        ("last_entry", LONG),
        ("due_time", TIME),
        ("message_due", TIME),
        ("tick_ms", LONG),
        ("released_at", TIME),
        ("redelivery_count", LONG),
        ("round", LONG),
        ("cause", TEXT),
        ("batch_id", LONG),
        optional=("round",),
    ),
    writer="schedule",
    properties=forgetting.A_DAY,
)

# What is due and held back for its subscription; nothing else. `again_at`: its guard failed, and is asked again then.
_HELD = REDELIVERY.columns.and_optional(("again_at", TIME))
HELD = Table("held", _HELD, writer="dispatch", properties=forgetting.A_DAY)

DELIVERIES = Table(
    "deliveries",
    Columns.of(
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("ledger_id", LONG),
        ("entry_id", LONG),
        ("due_time", TIME),
        ("deliver_at", TIME),
        ("released_at", TIME),
        ("redelivery_count", LONG),
        ("round", LONG),
        ("cause", TEXT),
        ("batch_id", LONG),
        ("sequence", LONG),
        ("message_key", TEXT),
        ("properties", TEXT_MAP),
        ("publish_time", TIME),
        ("producer_name", TEXT),
        ("sequence_id", LONG),
        ("payload", BYTES),
        optional=("deliver_at", "round", "message_key", "properties", *IDENTITY, "payload"),
    ),
    writer="dispatch",
    properties=forgetting.SIX_HOURS,
)

PUBLICATIONS = Table(
    "publications",
    Columns.of(
        ("batch_id", LONG),
        ("committed_at", TIME),
        ("count", LONG),
        ("first_due", TIME),
        ("last_due", TIME),
        ("job_started_at", TIME),
        optional=("job_started_at",),
    ),
    writer="dispatch",
    properties=forgetting.SIX_HOURS,
)

REJECTED_INGEST = Table(
    "rejected_ingest",
    Columns.of(
        ("reason", TEXT),
        ("rejected_at", TIME),
        ("batch_id", LONG),
        *((each.name, each.kind) for each in INBOX.columns.fields),
        *((name, LONG) for name in OLDER),
        optional=(*INBOX.columns.names, *OLDER),
    ),
    writer="ingest",
)

REJECTED_SCHEDULE = Table(
    "rejected_schedule",
    Columns.of(
        ("reason", TEXT),
        ("rejected_at", TIME),
        ("batch_id", LONG),
        ("topic", TEXT),
        ("subscription", TEXT),
        ("segment_start", TIME),
        ("chunk", BYTES),
        optional=("chunk",),
    ),
    writer="schedule",
)

REJECTED_DISPATCH = Table(
    "rejected_dispatch",
    Columns.of(
        ("reason", TEXT),
        ("rejected_at", TIME),
        ("batch_id", LONG),
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("ledger_id", LONG),
        ("entry_id", LONG),
        ("due_time", TIME),
        ("redelivery_count", LONG),
        ("round", LONG),
        ("cause", TEXT),
        ("message_key", TEXT),
        ("guard_version", LONG),
        ("table_versions", TEXT_MAP),
        optional=("life", "round", "message_key", "guard_version", "table_versions"),
    ),
    writer="dispatch",
)
GUARDED = ("message_key", "guard_version", "table_versions")
"""Columns that only rows with the reason `suppressed` have: the key, the version of the registry with the guard, and
the versions of the tables that it read, by their names."""
CANCELLED, RESCHEDULED, EXPIRED, SUPPRESSED = "cancelled", "rescheduled", "expired", "suppressed"
"""Reasons in `rejected_dispatch` of what dispatch left out: a command withdrew the position, or gave it another due
time, so that it comes in a later round, whose `cause` is the same word; or it was not handed over within the `ttl_ms`
of its subscription, or did not meet its guard."""
NEVER_COMES = (CANCELLED, EXPIRED, SUPPRESSED, WAS_REPLACED)
"""The reasons of what has a message, and comes to nobody in any round."""
LEFT_OUT = (RESCHEDULED, *NEVER_COMES)
"""The reasons of all that has a message."""
REFUSED_BY_BROKER = "refused_by_broker"
"""The reason in `rejected_dispatch` of a delivery that the broker of a sink does not take; the sink appends it."""
MESSAGE_MISSING = "message_missing"
"""The reason of what has none in the log: a position in `rejected_dispatch`, a dead letter in `rejected_settle`."""

# Appended by users, by any Delta writer: all columns may be NULL, and rows that cannot be followed change nothing. A
# command is the rows with its `command_id`: runs of positions, each of one redelivery count of one life. A row of kind
# `undo` names in `undoes` the command that it takes back. No message of a run is due after `due_time`. A row with a
# `round` gives the run another due time: it is due at `deliver_at` in that round, and was at `due_before` in the one
# before it.
COMMANDS = Table(
    "commands",
    Columns.of(
        ("kind", TEXT),
        ("command_id", TEXT),
        ("undoes", TEXT),
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("ledger_id", LONG),
        ("first_entry", LONG),
        ("last_entry", LONG),
        ("redelivery_count", LONG),
        ("round", LONG),
        ("due_time", TIME),
        ("deliver_at", TIME),
        ("due_before", TIME),
        ("asked", TEXT),
        ("issued_by", TEXT),
        ("reason", TEXT),
        ("at", TIME),
        optional=(
            "kind", "command_id", "undoes", "topic", "subscription", "life", "ledger_id", "first_entry", "last_entry",
            "redelivery_count", "round", "due_time", "deliver_at", "due_before", "asked", "issued_by", "reason", "at",
        ),
    ),
    writer="users",
)  # fmt: skip

# Appended by consumers, by any Delta writer: all columns may be NULL, and what cannot be followed is refused with a
# reason. Acknowledgements name positions as runs. Leases of slots stand in the same table, so that one append holds
# what a consumer did and whether it was still the owner.
CONSUMER_EVENTS = Table(
    "consumer_events",
    Columns.of(
        ("kind", TEXT),
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("consumer", TEXT),
        ("session", LONG),
        ("at", TIME),
        ("ledger_id", LONG),
        ("first_entry", LONG),
        ("last_entry", LONG),
        ("redelivery_count", LONG),
        ("after_ms", LONG),
        ("cause", TEXT),
        ("counter", LONG),
        ("slot", LONG),
        ("handed", LONG),
        ("priority", LONG),
        ("lease_ms", LONG),
        optional=(
            "kind", "topic", "subscription", "life", "consumer", "session", "at", "ledger_id", "first_entry",
            "last_entry", "redelivery_count", "after_ms", "cause", "counter", "slot", "handed", "priority", "lease_ms",
        ),
    ),
    writer="consumers",
    properties=forgetting.AN_HOUR,
)  # fmt: skip

CURSOR_HEAD, CURSOR_LEASES = -1, -2
"""Values of `block` in `cursors`: the row holds the head of a cursor, or who leases which slots."""
# What is open of each subscription that acknowledges. Of the rows of one subscription, life and block the one with the
# largest `batch_id` counts; without bytes there is no such block any more. `events` and `released` are the versions of
# `consumer_events` and `redelivery` up to which settle had read; the commit's note has them, too.
CURSORS = Table(
    "cursors",
    Columns.of(
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("block", LONG),
        ("batch_id", LONG),
        ("events", LONG),
        ("released", LONG),
        ("outstanding", LONG),
        ("waiting", LONG),
        ("bytes", BYTES),
        optional=("outstanding", "waiting", "bytes"),
    ),
    writer="settle",
    properties=forgetting.AN_HOUR,
)

# Redeliveries that wait in the index though the position is settled: it was acknowledged late, after a nack or a
# timeout. Dispatch leaves them out, and consumers pass over them.
CLOSED = Table(
    "closed",
    Columns.of(
        ("topic", TEXT),
        ("subscription", TEXT),
        ("life", LONG),
        ("ledger_id", LONG),
        ("first_entry", LONG),
        ("last_entry", LONG),
        ("redelivery_count", LONG),
        ("cause", TEXT),
        ("closed_at", TIME),
        ("batch_id", LONG),
    ),
    writer="settle",
    properties=forgetting.A_DAY,
)

REJECTED_SETTLE = Table(
    "rejected_settle",
    Columns.of(
        ("reason", TEXT),
        ("rejected_at", TIME),
        ("batch_id", LONG),
        *((each.name, each.kind) for each in CONSUMER_EVENTS.columns.fields),
        optional=tuple(CONSUMER_EVENTS.columns.names),
    ),
    writer="settle",
)

TABLES = (
    *(INBOX, SUBSCRIPTIONS, MESSAGES, SEGMENTS, REDELIVERY, DELIVERIES, PUBLICATIONS, REJECTED_INGEST),
    *(REJECTED_SCHEDULE, REJECTED_DISPATCH, CONSUMER_EVENTS, CURSORS, CLOSED, REJECTED_SETTLE, COMMANDS, HELD),
    *(SCHEDULES, CALENDARS, REPLACED),
)
REJECTED = (REJECTED_INGEST, REJECTED_SCHEDULE, REJECTED_DISPATCH, REJECTED_SETTLE)
"""What each stage refuses, in the order of the stages."""

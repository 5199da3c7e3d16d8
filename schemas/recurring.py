"""The tables of what recurs, and of days on which it does not."""

from schemas.columns import FLAG, LONG, TEXT, TEXT_MAP, TIME, Columns
from schemas.contract import Table

# What recurs: a row is a schedule, and its name stands once. Set by users, with any Delta writer: all columns may be
# NULL, and a row that cannot be followed is listed and changes nothing.
SCHEDULES = Table(
    "schedules",
    Columns.of(
        ("name", TEXT),
        ("topic", TEXT),
        ("cron", TEXT),
        ("rrule", TEXT),
        ("every_ms", LONG),
        ("zone", TEXT),
        ("start", TIME),
        ("until", TIME),
        ("limit", LONG),
        ("jitter_ms", LONG),
        ("days_off", TEXT),
        ("calendar", TEXT),
        ("on_day_off", TEXT),
        ("on_gap", TEXT),
        ("on_fold", TEXT),
        ("catch_up", TEXT),
        ("catch_up_within_ms", LONG),
        ("message_key", TEXT),
        ("properties", TEXT_MAP),
        ("payload", TEXT),
        ("paused", FLAG),
        ("set_at", TIME),
        optional=(
            "name", "topic", "cron", "rrule", "every_ms", "zone", "start", "until", "limit", "jitter_ms", "days_off",
            "calendar", "on_day_off", "on_gap", "on_fold", "catch_up", "catch_up_within_ms", "message_key",
            "properties", "payload", "paused", "set_at",
        ),
    ),
    writer="users",
)  # fmt: skip

# Days off: a row is a day of a calendar. Set by users as above; a row that is no day is listed and changes nothing.
CALENDARS = Table(
    "calendars",
    Columns.of(("name", TEXT), ("day", TEXT), ("text", TEXT), optional=("name", "day", "text")),
    writer="users",
)

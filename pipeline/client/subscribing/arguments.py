"""What may be said of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypedDict


class HowScheduled(TypedDict, total=False):
    """When and what a schedule sends; exactly one of `cron`, `rrule` and `every_ms`.

    Attributes:
        cron: five fields, or six with the second first.
        rrule: or a rule of RFC 5545; it begins at `start`, or now.
        every_ms: or a span of real time, from a second on.
        zone: a time zone of the IANA database; UTC if nothing is said.
        start: nothing comes before; with a time zone.
        until: nothing comes after; with a time zone.
        limit: so many come, counted from `start`, or from now.
        jitter_ms: each is due up to so much later.
        days_off: local days, as `2026-12-25`.
        calendar: the name of a calendar, whose days are off, too.
        on_day_off: what becomes of what falls on one; `skip` if nothing is said.
        on_gap: what becomes of a local time that clocks skip; as the notation says if nothing is said.
        on_fold: what becomes of one that comes twice; as the notation says if nothing is said.
        catch_up: what becomes of what was missed while no job ran; `latest` if nothing is said.
        catch_up_within_ms: what was missed longer ago does not come; a day if nothing is said.
        message_key: of each message.
        properties: of each message.
        payload: of each message; `{occurrence}` in it stands for the time of the occurrence.
        paused: nothing comes until it is resumed.
    """

    cron: str | None
    rrule: str | None
    every_ms: int | None
    zone: str
    start: datetime | None
    until: datetime | None
    limit: int | None
    jitter_ms: int
    days_off: Sequence[str]
    calendar: str | None
    on_day_off: Literal["skip", "next", "previous"]
    on_gap: Literal["after", "skip"] | None
    on_fold: Literal["first", "both"] | None
    catch_up: Literal["all", "latest", "none"]
    catch_up_within_ms: int
    message_key: str | None
    properties: dict[str, str]
    payload: str
    paused: bool

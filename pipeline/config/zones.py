"""Time zones by their names, with the rules of one release of the IANA database: the same on each machine.

A machine has rules of its own, which may be older. What is planned by one machine and looked at on another one shall
be at the same time, so the rules come with the package `tzdata`, whose version is pinned where this is installed.
"""

from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata

from pipeline.config.errors import BadValue

RULES = tzdata.IANA_VERSION
"""The release of the rules, as `2026a`."""


@cache
def zone_names() -> frozenset[str]:
    """The names of all zones."""
    return frozenset(files(tzdata).joinpath("zones").read_text(encoding="utf-8").split())


@cache
def zone(name: str) -> ZoneInfo:
    """The zone of a name, as `Europe/Rome` or `UTC`.

    Raises:
        BadValue: there is no such zone.
    """
    if name not in zone_names():
        raise BadValue("zone", name, "the name of a time zone of the IANA database, as Europe/Rome, or UTC")
    with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, name)

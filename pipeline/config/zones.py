"""Time zones by their names, with the rules of one release of the IANA database: the same on each machine.

A machine has rules of its own, which may be older. What is planned by one machine and looked at on another one shall
be at the same time, so the rules come with the package `tzdata`. Two machines may have other releases of that, too: a
plan says by which it was made, and `check_rules` refuses to go on by others.
"""

from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata

from pipeline.config.errors import BadValue, NotAllowed

RULES = tzdata.IANA_VERSION
"""The release of the rules, as `2026a`."""


class OtherRules(NotAllowed):
    """This machine has another release of the rules of time zones than the one by which due times were decided.

    Messages could come twice, or not at all. Install the `tzdata` that is named, and start again.
    """


def check_rules(decided: str) -> None:
    """Refuse to find due times again by other rules.

    Args:
        decided: the release by which they were decided; empty: nobody noted it.

    Raises:
        OtherRules: the one that is installed is another one.
    """
    if decided not in ("", RULES):
        raise OtherRules("tzdata", RULES, f"{decided}, by which due times were decided")


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

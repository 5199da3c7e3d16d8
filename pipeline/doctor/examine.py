"""All checks of a warehouse."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.doctor.check_checkpoints import checkpoints
from pipeline.doctor.check_commands import commanded
from pipeline.doctor.check_dispatch import delivered, prepared
from pipeline.doctor.check_ingest import accounted
from pipeline.doctor.check_keys import replaced
from pipeline.doctor.check_recurring import recurring, zone_rules
from pipeline.doctor.check_schedule import released
from pipeline.doctor.check_settle import opened, settled
from pipeline.doctor.check_surroundings import clock, guards, hours, lines, rejected, sources, space
from pipeline.doctor.check_tables import tables
from pipeline.doctor.look import Finding, Look, Severity, Unreadable, error

Check = Callable[[Look], Iterator[Finding]]
CHECKS: Mapping[str, Check] = {
    "tables": tables,
    "accounted": accounted,
    "released": released,
    "delivered": delivered,
    "settled": settled,
    "opened": opened,
    "commands": commanded,
    "keys": replaced,
    "checkpoints": checkpoints,
    "prepared": prepared,
    "clock": clock,
    "space": space,
    "sources": sources,
    "guards": guards,
    "hours": hours,
    "lines": lines,
    "recurring": recurring,
    "zone_rules": zone_rules,
    "rejected": rejected,
}
"""By name, in the order in which they are told."""


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        findings: in the order of the checks.
        versions: of the tables that were looked at.
    """

    findings: tuple[Finding, ...]
    versions: Mapping[str, int]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return all(each.severity is Severity.NOTE for each in self.findings)


def examine(root: str, now_ms: int) -> Report:
    """Look at a warehouse; nothing is changed, and stages may run.

    What a stage does between two reads may look wrong for a moment. So what is found is looked for once more, on what
    the tables are then, and told when it is still there.

    Args:
        root: the warehouse.
        now_ms: the wall clock, ms UTC.

    Raises:
        NoWarehouse: there is no table at all.
    """
    look = Look(root, now_ms)
    found = list(_all(look))
    if any(each.severity is not Severity.NOTE for each in found):
        seen = {each.same for each in found}
        look = Look(root, now_ms)
        found = [each for each in _all(look) if each.severity is Severity.NOTE or each.same in seen]
    return Report(tuple(found), {name: opened.log.newest for name, opened in look.tables.items()})


def _all(look: Look) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        try:
            yield from (replace(each, check=name) for each in check(look))
        except Unreadable:
            continue
        except Exception as failure:  # noqa: BLE001 - one thing that cannot be read hides no other
            text = f"the check could not be made: {type(failure).__name__}: {failure}"
            remedy = "mend what the check of the tables says, then look again"
            yield replace(error("not_checked", name, text, remedy), check=name)

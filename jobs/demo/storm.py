"""A storm is announced: flights of a day leave two hours later, and their reminders with them; one airline's do not."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from jobs.commands.commanding import report
from jobs.demo.check import LATER, SPARED, STORM
from jobs.demo.flights import REMINDERS
from pipeline.client.commanding.commands import Command, shift, undo

EVE_MS = int(STORM[0].timestamp() * 1_000) - 86_400_000
"""The storm is announced a day before: what is booked by then is moved."""
_DAY = " AND ".join(f"due_time {sign} '{end:%Y-%m-%dT%H:%M:%SZ}'" for sign, end in zip((">=", "<"), STORM, strict=True))
_MINE, _OTHERS = (f"{_DAY} AND properties['airline'] {sign} '{SPARED}'" for sign in ("=", "<>"))
_BY = f"--by +{LATER // timedelta(hours=1)}h"
_WORDS = f"delayline shift --topic {REMINDERS} {_BY} --where"


@dataclass(frozen=True)
class Storm:
    """What was commanded.

    Attributes:
        looked: what the dry run named.
        others: the shift of the airlines that stay shifted.
        mine: the shift of the one that does not.
        back: the undo of that; None: there was nothing to take back.
    """

    looked: Command
    others: Command
    mine: Command
    back: Command | None

    @property
    def moved(self) -> int:
        """How many messages are to come later."""
        back = 0 if self.back is None else self.back.selection.count
        return self.others.selection.count + self.mine.selection.count - back

    def lines(self) -> Iterator[str]:
        """The commands as somebody would type them, each with what it says first."""
        for where, options, found in (
            (_DAY, " --dry-run", self.looked),
            (_OTHERS, ' --issued-by ann --reason "snow"', self.others),
            (_MINE, ' --issued-by ann --reason "snow"', self.mine),
        ):
            yield f'{_WORDS} "{where}"{options}'
            yield f"  {next(report(REMINDERS, found, dry=found is self.looked))}"
        if self.back is not None:
            yield f'delayline undo {self.mine.command_id} --issued-by ann --reason "{SPARED} flies"'
            yield f"  {next(report(f'undo of {self.mine.command_id}', self.back, dry=False))}"


def announce(root: str) -> Storm:
    """Look, shift, and take one airline's shift back, in a warehouse whose stages stand between two instants."""
    looked = shift(root, REMINDERS, span=LATER, where=_DAY, dry_run=True)
    others, mine = (
        shift(root, REMINDERS, span=LATER, where=each, by="ann", reason="snow") for each in (_OTHERS, _MINE)
    )
    back = None if mine.command_id is None else undo(root, mine.command_id, by="ann", reason=f"{SPARED} flies")
    return Storm(looked, others, mine, back)

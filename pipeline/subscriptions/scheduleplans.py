"""How far schedules are planned, and by which definitions: a number beside the rows in `inbox`, and what it means.

Delta keeps the last number that was noted under a name beside the rows of a commit (`txn`). The file says what the last
two numbers mean, and is written before the commit. So which of the two is in force is decided by the commit alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from pipeline.config.settings import HOUR_MS
from pipeline.storage.files import Files

_LOG = logging.getLogger(__name__)
NAME = "delayline:planner"
"""Under which the planner notes its numbers in `inbox`."""
FOLDER = "_schedules"
_FILE = "plan.json"
NEVER = -1
_KEPT_MS = HOUR_MS
"""Which names were let go is kept for so long: a row may say that its schedule was set before it was noticed."""
Versions = tuple[int, int]
"""Of `schedules` and of `calendars`."""


@dataclass(frozen=True)
class Plan:
    """What is planned. Times in ms UTC.

    Attributes:
        number: noted beside the rows; -1: nothing was ever planned.
        version: of `schedules`, by whose definitions; -1: by none that is known.
        rules: the release of the rules of time zones.
        until: all occurrences up to then.
        ahead_ms: and the next one of each after that, if it is at most so far behind it.
        bound: nothing comes from then on by definitions of names that were let go and are not in `let_go`.
        calendars: the version of `calendars`; -1: none that is known.
        let_go: the names of definitions that are followed no more; from when on nothing comes by these.
    """

    number: int = NEVER
    version: int = NEVER
    rules: str = ""
    until: int = NEVER
    ahead_ms: int = 0
    bound: int = 0
    calendars: int = NEVER
    let_go: Mapping[str, int] = field(default_factory=dict)

    @property
    def versions(self) -> Versions:
        """Of both tables that have definitions."""
        return self.version, self.calendars

    def free_from(self, name: str) -> int:
        """From when on nothing comes by what a name was that is not followed, ms UTC."""
        return self.let_go.get(name, self.bound)

    def following(self, change: Change, let_go: Collection[str] | None, end: int) -> Plan:
        """This plan by the definitions of a change.

        Args:
            change: the change.
            let_go: the names that are followed no more; None: nobody knows them.
            end: from when on nothing comes by what they were, ms UTC.
        """
        plan = replace(self, version=change.version, calendars=change.calendars)
        if let_go is None:
            return replace(plan, bound=end, let_go={})
        every, kept = {**self.let_go, **dict.fromkeys(let_go, end)}, change.since - _KEPT_MS
        bound = max((each for each in every.values() if each <= kept), default=self.bound)
        recent = {name: each for name, each in every.items() if each > kept}
        return replace(plan, bound=max(self.bound, bound), let_go=recent)


@dataclass(frozen=True)
class Change:
    """Definitions that are about to be followed. Times in ms UTC.

    Attributes:
        version: of `schedules`.
        rules: the release of the rules of time zones.
        since: when it was noticed.
        bound: what was planned by other definitions for then or later is taken back.
        calendars: the version of `calendars`.
    """

    version: int
    rules: str
    since: int
    bound: int
    calendars: int = NEVER

    @property
    def versions(self) -> Versions:
        """Of both tables that have definitions."""
        return self.version, self.calendars

    def is_done(self, plan: Plan) -> bool:
        """Whether a plan follows them, or later ones."""
        is_later = plan.version >= self.version and plan.calendars >= self.calendars
        return is_later and plan.rules == self.rules


class PlanFile:
    """The file that says what numbers mean."""

    def __init__(self, files: Files, root: str) -> None:
        self._files, self._path = files, f"{root}/{FOLDER}/{_FILE}"

    @property
    def text(self) -> str | None:
        """What the file says; None: it is not there."""
        return self._files.text_if_there(self._path)

    def read(self, number: int | None) -> tuple[Plan, Change | None] | None:
        """What is in force, and what is about to be; None: nobody knows.

        Args:
            number: the last one that `inbox` has; None: it has none.
        """
        text = self.text
        if text is None:
            return None
        plans, change = self._parsed(text)
        found = [each for each in plans if each.number == (NEVER if number is None else number)]
        if not found:
            _LOG.warning("%s lacks the plan: all is planned anew", self._path)
            return None
        return found[-1], None if change is None or change.is_done(found[-1]) else change

    @property
    def needed(self) -> list[Versions]:
        """The versions that a planner may read that begins now, whichever number `inbox` has."""
        plans, change = self._parsed(self.text or "")
        return [each.versions for each in plans] + ([] if change is None else [change.versions])

    def write(self, plans: Sequence[Plan], change: Change | None) -> None:
        """Say what the last numbers mean, the newest last."""
        known = {"plans": [asdict(each) for each in plans], "change": None if change is None else asdict(change)}
        self.put(json.dumps(known))

    def put(self, text: str) -> None:
        """Say what another such file says."""
        self._files.write(self._path, text)

    @staticmethod
    def _parsed(text: str) -> tuple[list[Plan], Change | None]:
        try:
            known = json.loads(text)
            change = None if known["change"] is None else Change(**known["change"])
            return [Plan(**each) for each in known["plans"]], change
        except (ValueError, KeyError, TypeError):
            # A power cut left it empty, or a later version of this project wrote it.
            return [], None

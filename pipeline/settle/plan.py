"""What decides a batch of settle, noted before its first commit: who repeats the batch follows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any

import schemas
from pipeline.config.errors import SourceBehind
from pipeline.config.stages import SETTLE
from pipeline.delta.checkpoints import COMMITS
from pipeline.delta.logs.entries import last_note, newest
from pipeline.storage.files import Files
from state.units import Ms

_FILE = "plan.json"
FOLLOWED = {
    "events": schemas.CONSUMER_EVENTS,
    "refused": schemas.REJECTED_DISPATCH,
    "commands": schemas.COMMANDS,
    "released": schemas.REDELIVERY,
}
"""The tables that settle follows, by the name under which its notes tell how far it has read each.

In the order in which they are looked at: what is said of a release is read before the release is looked for.
"""

WRITTEN = COMMITS[SETTLE][1:-1]
"""The tables to which a batch appends, with its plan, between `inbox`, whose log is cut soon, and `cursors`."""


@dataclass(frozen=True)
class Upto:
    """Versions of the tables that settle follows, all taken up to these.

    Attributes:
        events: of `consumer_events`.
        released: of `redelivery`.
        refused: of `rejected_dispatch`.
        commands: of `commands`; notes of earlier versions of this project do not say it.
    """

    events: int
    released: int
    refused: int
    commands: int = 0


@dataclass(frozen=True)
class Plan:
    """All that decides the rows of a batch beside what it reads.

    Attributes:
        batch: its number.
        now: its instant, ms UTC; delays count from it.
        registry: version of `subscriptions` that says who acknowledges, by which policies.
        lives: the marker up to which ingest had said who lives.
        begin: what earlier batches took.
        events: what is taken with this one, as in `Upto`.
        released: the same.
        refused: the same.
        segments: the version of `segments` after which the batch may have written there.
        commands: what is taken with this one, as in `Upto`.
        letters: the number that was drawn for its dead letters; 0: an earlier version of this project drew none.
        rules: the release of the rules of time zones, by which windows are found; empty: nobody noted it.
        calendars: version of `calendars` that windows follow; -1: no topic asks for one.
    """

    batch: int
    now: Ms
    registry: int
    lives: int
    begin: Upto
    events: int
    released: int
    refused: int
    segments: int
    commands: int = 0
    letters: int = 0
    rules: str = ""
    calendars: int = -1

    @property
    def end(self) -> Upto:
        """What is taken when the batch is done."""
        return Upto(self.events, self.released, self.refused, self.commands)

    def as_dict(self) -> dict[str, Any]:
        """For the metadata of a commit."""
        return asdict(self)

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Plan:
        """The plan that a commit carries."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: note[name] for name in names & note.keys()} | {"begin": Upto(**note["begin"])})


def unfinished(plans: Iterable[Plan], last: Plan | None, reached: Callable[[Plan], bool]) -> Plan | None:
    """The batch that was begun and is not in `cursors`: the one that follows the last one there.

    In a copy that was made while settle ran, and in tables that were restored apart, later batches have left rows whose
    plans begin elsewhere, or follow versions that are not there. They are not to be finished: what they took is taken
    again, from where `cursors` ends.

    Args:
        plans: that commits and the checkpoint know.
        last: the plan of the last batch that `cursors` holds.
        reached: whether the tables that settle follows have all that a plan takes.
    """
    done = 0 if last is None else last.batch
    newest = max((each for each in plans if each.batch > done), key=attrgetter("batch"), default=None)
    if newest is None or not reached(newest):
        return None
    follows = newest.batch == done + 1 or (last is not None and newest.begin == last.end)
    return newest if follows else None


def written(files: Files, root: str, behind: int) -> list[Plan]:
    """The plans of the last batches in the tables that are written before `cursors`, when the checkpoint is lost.

    `segments` is ingest's: far back there may be none of settle's. It is looked at `behind` a version.
    """
    paths = {f"{root}/{table.name}": behind if table is schemas.SEGMENTS else -1 for table in WRITTEN}
    notes = (last_note(files, path, SETTLE, newest(files, path), after) for path, after in paths.items())
    return [Plan.of_note(each.note) for each in notes if each is not None]


def newest_of(files: Files, root: str, known: Upto) -> Upto:
    """The newest versions of the tables that settle follows, of each of which one is known."""
    found = {name: newest(files, f"{root}/{table.name}", getattr(known, name)) for name, table in FOLLOWED.items()}
    return Upto(**found)


def check_read(read: Upto, ends: Upto) -> None:
    """Refuse tables that end before what was read of them: what comes in the place of what they lack is no news.

    Raises:
        SourceBehind: one does.
    """
    for name, table in FOLLOWED.items():
        if getattr(ends, name) < getattr(read, name):
            raise SourceBehind(SETTLE, table.name, getattr(ends, name), getattr(read, name))


def reached(files: Files, root: str, plan: Plan) -> bool:
    """Whether the tables that settle follows have all versions that a plan takes."""
    return all(newest(files, f"{root}/{table.name}") >= getattr(plan, name) for name, table in FOLLOWED.items())


class PlanFile:
    """The folder of settle's checkpoint: who it is, and the plan that it follows or has followed last."""

    def __init__(self, files: Files, folder: str) -> None:
        """Read it; of a folder that is not there yet nothing is known."""
        self._files, self._path = files, f"{folder}/{_FILE}"
        text = files.text_if_there(self._path)
        note = json.loads(text) if text else {}
        self.owner: str | None = note.get("owner")
        self.plan: Plan | None = Plan.of_note(note["plan"]) if note else None

    def write(self, owner: str, plan: Plan) -> None:
        """Note a plan, whole or not at all."""
        self._files.write(self._path, json.dumps({"owner": owner, "plan": plan.as_dict()}))
        self.plan = plan

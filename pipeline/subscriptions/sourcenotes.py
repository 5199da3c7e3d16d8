"""Notes of sources and imports: which in the log of `inbox` are their own, and how far each is, as files for people.

Everybody may append to `inbox`, and copy what a source has noted. A note is sealed with a key that lies beside the
tables, and says behind which version of `inbox` it was made. So a note that somebody else made is known by its seal,
and one that somebody repeats by what lies between. The numbers that imports note there are planned in files first.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from pipeline.config.errors import PipelineError
from pipeline.delta.deltars import open_table
from pipeline.delta.logs.entries import Commit, note_of
from pipeline.storage.files import Files
from pipeline.storage.notes import Notes
from schemas import INBOX

AFTER, SEAL = "after", "seal"
"""The names under which a note says behind which version it was made, and its seal."""
_FOLDER = "_sources"


class SourceNotes:
    """The notes of one source.

    Attributes:
        begun: whether there is a key; without one nothing was sealed yet.
    """

    def __init__(self, files: Files, root: str, name: str, stage: str) -> None:
        """Read the key.

        Args:
            files: what reaches the warehouse.
            root: the warehouse.
            name: of the source.
            stage: under which it notes what it has read.
        """
        self._files, self._path, self._stage = files, f"{root}/{_FOLDER}/{name}.key", stage
        self._key = files.text_if_there(self._path) or ""

    @property
    def begun(self) -> bool:  # noqa: D102 - above
        return bool(self._key)

    def sealed(self, owner: str, batch: int, note: Mapping[str, Any], after: int) -> dict[str, Any]:
        """A note for a commit that is made behind a version of `inbox`. Makes the key if there is none."""
        if not self._key:
            self._key = token_hex(32)
            self._files.write(self._path, self._key)
        whole = {**note, AFTER: after}
        return {**whole, SEAL: self._seal(owner, batch, whole)}

    def last(self, entries: Iterable[tuple[int, Iterable[Mapping[str, Any]]]]) -> tuple[Commit | None, list[int]]:
        """The last of the source's own notes, and the versions of others under its name, as far as they were looked at.

        Args:
            entries: versions of `inbox` from the newest one back, with their actions.
        """
        last: Commit | None = None
        others = list[int]()
        at = -1
        for version, actions in entries:
            if last is not None and version <= last.note[AFTER]:
                break
            commit = note_of(actions)
            if commit is None or commit.stage != self._stage:
                continue
            if not self._is_ours(commit):
                others.append(version)
            elif last is None or commit.note[AFTER] > last.note[AFTER]:
                # What was taken for the last one came behind this one, and was made before it.
                others += [] if last is None else [at]
                last, at = commit, version
        return last, others

    def _is_ours(self, commit: Commit) -> bool:
        note = dict(commit.note)
        seal = note.pop(SEAL, None)
        if not self._key or not isinstance(seal, str) or not isinstance(note.get(AFTER), int):
            return False
        return hmac.compare_digest(seal.encode(), self._seal(commit.owner, commit.batch, note).encode())

    def _seal(self, owner: str, batch: int, note: Mapping[str, Any]) -> str:
        text = json.dumps([self._stage, owner, batch, note], sort_keys=True)
        return hmac.digest(self._key.encode(), text.encode(), "sha256").hex()


def keys(files: Files, root: str) -> list[str]:
    """The names of the sources that have sealed notes."""
    names = files.names(f"{root}/{_FOLDER}")
    return sorted(each.removesuffix(".key") for each in names if each.endswith(".key"))


@dataclass(frozen=True)
class SourceState:
    """What is known of a source.

    Attributes:
        name: its name in the profile.
        address: what it follows.
        taken: rows that this process and earlier ones have appended, about.
        place: how far it has read; None: nothing yet.
        behind: rows that it has yet to read, as of the last look; None: nobody knows.
        unknown: why nobody knows; None: somebody does, or it has not been looked at.
        seen_ms: when that was, ms UTC; None: it has not been looked at.
        error: why it stands still; None: it does not.
    """

    name: str
    address: str
    taken: int = 0
    place: Mapping[str, Any] | None = None
    behind: int | None = None
    seen_ms: int | None = None
    error: str | None = None
    unknown: str | None = None


def source_states(files: Files, root: str) -> Notes[SourceState]:
    """How far the sources of a warehouse are, by their names."""
    return Notes(files, f"{root}/{_FOLDER}", SourceState)


IMPORTS = "_imports"
"""The folder of their files and locks."""


class NotedByOthers(PipelineError):
    """Somebody else noted a number under the name of an import (`txn`), so nobody knows how far it is.

    Look whether `inbox` has the last messages that the import has planned, and note the right number by an append of
    your own.
    """

    def __init__(self, name: str, number: int | None, allowed: str) -> None:
        super().__init__(
            f"{INBOX.name}: the number {number} under {name!r} is not of this import, allowed: {allowed}; find out how "
            "far it is, and note that number by an append of your own (docs/operations.md)"
        )
        self.name, self.number, self.allowed = name, number, allowed


def check_planned(name: str, noted: Sequence[Sequence[int]], done: int | None) -> None:
    """Refuse a number that is neither that of the last plan nor that of the one before, when that did not come.

    Raises:
        NotedByOthers: it is another one.
    """
    planned = [None, *(number for number, *_ in noted)][-2:]
    if done not in planned:
        raise NotedByOthers(name, done, " or ".join("none" if each is None else str(each) for each in planned))


def noted_by_others(root: str) -> Iterator[NotedByOthers]:
    """What is wrong with imports of a warehouse."""
    files, folder = Files(), f"{root}/{IMPORTS}"
    for file in sorted(each for each in files.names(folder) if each.endswith(".json")):
        name = file.removesuffix(".json")
        noted = json.loads(files.text_if_there(f"{folder}/{file}") or "[]")
        try:
            check_planned(name, noted, open_table(root, INBOX).transaction_version(name))
        except NotedByOthers as error:
            yield error

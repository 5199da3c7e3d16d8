"""Which notes in the log of `inbox` are a source's own: everybody may append there, and copy what a source has noted.

A note is sealed with a key that lies beside the tables, and says behind which version of `inbox` it was made. So a note
that somebody else made is known by its seal, and one that somebody repeats by what lies between.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import Any

from pipeline.delta.logs.entries import Commit, note_of
from pipeline.storage.files import Files

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

"""RESTORE of a table that the stages write: the notes in its log say what was done, and the rows are others by now.

A stage goes on from the last note in a log. After a RESTORE of Delta's, that one tells of rows that are gone, or of
rows that are there again though they were deleted for good.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pipeline.config.errors import PipelineError
from pipeline.config.stages import ALL_STAGES
from pipeline.delta.logs.entries import OURS, commits, info_of, newest, note_of, restores
from pipeline.storage.files import Files
from schemas import Table

_DIGITS = 19
"""Of a version. Anybody may write more, and Python refuses to read a number of some thousand."""
Version = tuple[int, Sequence[Mapping[str, Any]]]
"""A version, and its actions."""


class TableRestored(PipelineError):
    """Somebody restored a table of the stages (`RESTORE TABLE`), which go on from what its log says.

    Take the RESTORE back while no stage runs. Where a VACUUM has taken the files, restore all tables from one copy.
    """

    def __init__(self, table: str, version: int, path: str) -> None:
        text = f"{table}: version {version} is a RESTORE, and its rows are not what the stages wrote"
        super().__init__(f"{text}; {remedy_of(path, version)}")
        self.table, self.version, self.path = table, version, path


def remedy_of(path: str, version: int) -> str:
    """What to do when a version of a table is a RESTORE."""
    return (
        f"stop all stages, and take it back with: RESTORE TABLE delta.`{path}` TO VERSION AS OF {version - 1}; "
        "or restore all tables and checkpoints from one copy (docs/operations.md)"
    )


def restore_among(versions: Iterable[Version]) -> int | None:
    """The first RESTORE of some versions that follow each other; None: no RESTORE changes the files.

    One that goes back to one of these versions, or to the one before them, takes back what came in between. One that
    takes back what others did, or that another one takes back, leaves the files as they were.
    """
    versions = _without_taken_back(sorted(versions, key=lambda each: each[0]))
    restored = min((version for version, actions in versions if restores(actions)), default=None)
    others = [actions for _, actions in versions if info_of(actions).get("engineInfo") != OURS]
    changed = restored is not None and _changes([actions for _, actions in versions]) and _changes(others)
    return restored if changed else None


def _without_taken_back(versions: Sequence[Version]) -> list[Version]:
    kept = list[Version]()
    for version, actions in versions:
        target = _target(actions) if restores(actions) else None
        if target is not None and target >= versions[0][0] - 1:
            kept = [each for each in kept if each[0] <= target]
        else:
            kept.append((version, actions))
    return kept


def _target(actions: Sequence[Mapping[str, Any]]) -> int | None:
    """The version to which a RESTORE goes back; None: it does not say."""
    stated = info_of(actions).get("operationParameters")
    text = str(stated.get("version")) if isinstance(stated, Mapping) else ""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def _changes(versions: Iterable[Sequence[Mapping[str, Any]]]) -> bool:
    """Whether other files are there after some versions than before them."""
    counts: dict[str, int] = {}
    for each in (action for actions in versions for action in actions):
        for kind, step in (("add", 1), ("remove", -1)):
            if kind in each:
                path = unquote(each[kind]["path"])
                counts[path] = counts.get(path, 0) + step
    return any(counts.values())


def restored_since_note(files: Files, path: str, table: Table) -> int | None:
    """The RESTORE that came after the last note in the log of a table of the stages; None: none did.

    The log is read back to that note, which mostly is its last entry.
    """
    return restore_among(_since_note(files, path, newest(files, path))) if table.writer in ALL_STAGES else None


def _since_note(files: Files, path: str, version: int) -> list[Version]:
    """The versions up to one, back to the last note of a stage."""
    found = list[Version]()
    for actions in commits(files, path, version):
        if note_of(actions) is not None:
            break
        found.append((version, actions))
        version -= 1
    return found


def refuse_restored(files: Files, path: str, table: Table, versions: Sequence[Version]) -> None:
    """Refuse a table that somebody restored while a stage ran, by the versions that came meanwhile.

    A RESTORE may take back what others did before these versions: then it is none, as for a start.

    Raises:
        TableRestored: somebody did.
    """
    restored = restore_among(versions) if table.writer in ALL_STAGES else None
    if restored is not None and all(note_of(actions) is None for _, actions in versions):
        restored = restore_among(_since_note(files, path, versions[-1][0]))
    if restored is not None:
        raise TableRestored(table.name, restored, path)

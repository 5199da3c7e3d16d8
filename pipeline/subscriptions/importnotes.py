"""What imports have planned, and the numbers of the log of `inbox` that are not theirs: anybody may note one there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pipeline.config.errors import PipelineError
from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from schemas import INBOX

IMPORTS = "_imports"
"""The folder of their files and locks."""


class NotedByOthers(PipelineError):
    """Somebody else noted a number under the name of an import (`txn`), so nobody knows how far it is.

    Look whether `inbox` has the last messages that the import has planned, and note the right number by an append of
    your own.
    """

    def __init__(self, name: str, number: int | None, allowed: str) -> None:
        """Name the import, the number (None: there is none), and those that it may be."""
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
    planned = [None, *(number for number, _ in noted)][-2:]
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

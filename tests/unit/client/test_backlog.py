"""What a consumer reads that takes slots which others had."""

from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
import pytest
from pyroaring import BitMap

from pipeline.client.consuming.backlog import Backlog, open_rows
from pipeline.client.tables.datarows import DataFile
from pipeline.client.tables.deliveryset import NO_SLOT, DeliverySet
from pipeline.client.tables.rows import slot_rule
from pipeline.client.tables.tail import DeliveryLog
from state import SubscriptionType

KEY = ("t", "s", 1)


class Listed:
    """A log whose table has some files, and that says which of them are read."""

    def __init__(self, *files: DataFile) -> None:
        self.files, self.data, self.read = files, self, list[str]()

    def table(self, _version: int) -> list[DataFile]:
        """The files."""
        return list(self.files)

    def of(self, files: Sequence[DataFile], *_: object) -> Iterator[pa.Table]:
        """No rows."""
        self.read += [each.path for each in files]
        return iter(())


def file(path: str, ledgers: tuple[int, int], entries: tuple[int, int] | None) -> DataFile:
    """A file with rows of the subscription."""
    own = {"topic": "t", "subscription": "s", "life": 1}
    ends = [{**own, "ledger_id": ledgers[n]} | ({} if entries is None else {"entry_id": entries[n]}) for n in (0, 1)]
    return DataFile(path, *ends)


@pytest.mark.parametrize(
    ("ledgers", "entries", "is_read"),
    [
        ((7, 7), (0, 9), False),
        ((7, 7), (5, 10), True),
        ((7, 7), (10, 10), True),
        ((7, 7), (11, 40), False),
        ((7, 7), None, True),
        ((6, 7), (20, 40), True),
        ((8, 9), (10, 10), False),
    ],
)
def test_a_file_of_which_all_is_settled_is_not_read(
    ledgers: tuple[int, int], entries: tuple[int, int] | None, *, is_read: bool
) -> None:
    """Slots change hands all the time, and only the last few messages of a ledger are open."""
    log = Listed(file("a", ledgers, entries))
    backlog = Backlog({0, 1, 2, 3}, 5, 0, 0, {}, announces=False, mark=0, exclude=DeliverySet())
    backlog.still_open.put(7, NO_SLOT, 0, BitMap([10]))
    slots_of = slot_rule(SubscriptionType.KEY_SHARED, 4)
    assert list(open_rows(cast("DeliveryLog", log), KEY, slots_of, backlog)) == []
    assert log.read == (["a"] if is_read else [])

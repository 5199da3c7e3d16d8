"""The files that one batch of a stream takes."""

from pipeline.delta.commits import between, rows_of
from pipeline.delta.offsets import Position
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.storage.parquet import PLACE, SETTING, SIZE, NotInDriver, is_plain
from schemas import Table


def files_between(
    files: Files, warehouse: Warehouse, table: Table, begin: Position, end: Position, most: int
) -> list[tuple[int, str]]:
    """The files that a batch of a stream takes: the version that added each, and a path that can be read.

    Raises:
        NotInDriver: only Spark reads the table, they hold more than `most` rows, or they are more than plain files.
    """
    path = warehouse.path(table)
    folder = files.readable(path)
    if folder is None or most == 0:
        raise NotInDriver(SETTING if most == 0 else PLACE)
    added = between(files, path, (begin.version, begin.index), (end.version, end.index))
    count = rows_of(added)
    if added is None or count is None or not all(map(is_plain, added)):
        raise NotInDriver
    if count > most:
        raise NotInDriver(SIZE)
    return [(each["version"], f"{folder}/{each['path']}") for each in added]

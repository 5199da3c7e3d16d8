"""Where the mark of what is settled lies, and reading it."""

from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import MARK, SettledMark
from schemas import MESSAGES


def mark_path(warehouse: Warehouse) -> str:
    """The file of the mark."""
    return f"{warehouse.path(MESSAGES)}/{MARK}"


def read_mark(files: Files, warehouse: Warehouse) -> SettledMark:
    """The mark of a warehouse; below the first one is nothing."""
    told = files.text_if_there(mark_path(warehouse))
    return SettledMark() if told is None else SettledMark.loads(told)

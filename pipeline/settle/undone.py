"""What settle has put into `segments` and does not know of: in a copy that was made while it ran."""

from __future__ import annotations

from pipeline.config.stages import SETTLE
from pipeline.delta.logs.entries import reaches_back
from pipeline.delta.smallqueries import ask
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.settle.outcome import RETRY
from pipeline.settle.plan import Plan, PlanFile, reached, unfinished
from schemas import CLOSED, CURSORS, REJECTED_SETTLE, SEGMENTS

_LAST = f"SELECT MAX(batch_id) AS last FROM {{rows}} WHERE kind = '{RETRY}'"  # noqa: S608 - our own word


def undone(warehouse: Warehouse) -> tuple[int, int] | None:
    """The first and the last batch whose retries settle puts into the index once more; None: there is none.

    `cursors` says what settle has done. What later batches took it takes again, so what they have put into `segments`
    must not come beside that. A batch that died between its commits is not among them: that one is finished.
    """
    files, last = warehouse.files, last_commit(warehouse, CURSORS, SETTLE)
    if last is None:
        # Settle begins anew, and does not know what was open.
        return None
    done = Plan.of_note(last.note)
    if not reaches_back(files, warehouse.path(SEGMENTS), done.segments):
        # The copy took long, and maintenance has cut the log meanwhile. Settle does not find any of it there either.
        (row,) = ask(warehouse, SEGMENTS, _LAST)
        return (done.batch + 1, int(row["last"])) if (row["last"] or 0) > done.batch else None
    put = last_commit(warehouse, SEGMENTS, SETTLE, done.segments)
    if put is None or put.batch <= done.batch:
        return None
    others = (last_commit(warehouse, table, SETTLE) for table in (CLOSED, REJECTED_SETTLE))
    plans = [Plan.of_note(each.note) for each in (put, *others) if each is not None]
    noted = PlanFile(files, warehouse.checkpoint(SETTLE)).plan
    torn = unfinished(
        [*plans, *([] if noted is None else [noted])], done, lambda plan: reached(files, warehouse.root, plan)
    )
    end = put.batch if torn is None else torn.batch - 1
    return (done.batch + 1, end) if end > done.batch else None

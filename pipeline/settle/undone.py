"""What settle has put into `segments` and does not know of: in a copy that was made while it ran."""

from __future__ import annotations

from pipeline.config.stages import SETTLE
from pipeline.delta.logs.entries import Commit, newest, reaches_back
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.settle.core.fold import RETRY
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
    put = last_commit(warehouse, SEGMENTS, SETTLE, done.segments)
    end = 0 if put is None else put.batch
    if not reaches_back(files, warehouse.path(SEGMENTS), done.segments):
        # The copy took long, and maintenance has cut the log meanwhile. Or settle had nothing to do for long.
        end = max(end, _last_of_rows(warehouse))
    if put is not None and done.batch < end == put.batch and _is_torn(warehouse, put, done):
        # Settle finds that commit, too, and does not put its retries there again.
        end -= 1
    return (done.batch + 1, end) if end > done.batch else None


def _is_torn(warehouse: Warehouse, put: Commit, done: Plan) -> bool:
    """Whether a batch that has written to `segments` is the one that settle finishes as it was planned."""
    files = warehouse.files
    others = (last_commit(warehouse, table, SETTLE) for table in (CLOSED, REJECTED_SETTLE))
    plans = [Plan.of_note(each.note) for each in (put, *others) if each is not None]
    noted = PlanFile(files, warehouse.checkpoint(SETTLE)).plan
    plans += [] if noted is None else [noted]
    torn = unfinished(plans, done, lambda plan: reached(files, warehouse.root, plan))
    return torn is not None and torn.batch == put.batch


def begins_behind(warehouse: Warehouse) -> int:
    """The version of `segments` behind which the first batch of all may have written, of which `cursors` knows nothing.

    Mostly it has not, and nobody reads back a log that is ingest's.
    """
    version = newest(warehouse.files, warehouse.path(SEGMENTS))
    return -1 if _last_of_rows(warehouse) else version


def _last_of_rows(warehouse: Warehouse) -> int:
    """The last batch that has put something into `segments`, by the rows there; 0: none has."""
    (row,) = ask(warehouse, SEGMENTS, _LAST)
    return int(row["last"] or 0)

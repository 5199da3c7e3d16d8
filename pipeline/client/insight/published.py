"""When deliveries became visible, in DataFusion's SQL: as `pipeline.delta.views.lateness` says it for Spark."""

from __future__ import annotations

from deltalake import DeltaTable

ROW = "topic, subscription, life, ledger_id, entry_id, redelivery_count"
"""Names a row of `deliveries`."""
_STARTED = "job_started_at"
_PUBLISHED = """
    SELECT * FROM (
        SELECT d.*, p.committed_at, p.job_started_at, ROW_NUMBER() OVER (
            PARTITION BY {row} ORDER BY ABS(arrow_cast(p.committed_at, 'Int64') - arrow_cast(d.released_at, 'Int64'))
        ) AS nearest
        FROM ({rows}) d LEFT JOIN (
            SELECT batch_id AS noted_batch, committed_at, first_due, last_due, {started} FROM publications
        ) p ON p.noted_batch = d.batch_id
        AND d.due_time >= p.first_due AND d.due_time <= p.last_due AND p.committed_at >= d.due_time
    ) WHERE nearest = 1
"""


def published(rows: str, publications: DeltaTable) -> str:
    """Some rows of `deliveries`, each once, with `committed_at` and `job_started_at`.

    NULL: it is not noted yet, or not any more. The second one is NULL also where the job had a virtual clock.
    A new checkpoint counts batches from 0 again: of several publications of one number the one counts that is nearest
    to the release.

    Args:
        rows: a query over `deliveries` that gives the columns `ROW`, `batch_id`, `due_time` and `released_at`.
        publications: the table. One that was made earlier gets new columns when its job starts.
    """
    row = ", ".join(f"d.{name}" for name in ROW.split(", "))
    there = any(field.name == _STARTED for field in publications.schema().fields)
    started = _STARTED if there else f"CAST(NULL AS TIMESTAMP) AS {_STARTED}"
    return _PUBLISHED.format(row=row, rows=rows, started=started)

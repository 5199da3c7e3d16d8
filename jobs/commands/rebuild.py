"""`delayline rebuild`: stages that are stopped go on from the tables, each on a new checkpoint."""

from collections.abc import Iterator, Sequence

from jobs.commands.spark import session
from jobs.progress import progress
from pipeline.config.options import OnStep, Options
from pipeline.config.session import Machine
from pipeline.config.settings import LiveClock
from pipeline.config.stages import ALL_STAGES, SETTLE, STAGES
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import check_warehouse
from pipeline.delta.warehouse import Warehouse
from pipeline.service.rebuild import rebuild, reset_settle
from pipeline.storage.storecheck import check_store

ALL = "all"
"""Instead of a stage: all of them, in the order in which a message passes them."""
CHOICES = (*STAGES, ALL)


def run(root: str, stage: str, *, reset_clock: bool) -> Iterator[str]:
    """Rebuild a stage, or all, in a session of its own; gives a line for each.

    Raises:
        NoJava, NoSession: Spark did not start.
        StageRunning: a stage that must be stopped runs.
    """
    with session("delayline rebuild", Machine(), root) as spark, progress() as on_step:
        yield from rebuilt(Warehouse(root, spark), stages_of(stage), reset_clock=reset_clock, on_step=on_step)


def stages_of(stage: str) -> tuple[str, ...]:
    """The stages that a choice names."""
    return ALL_STAGES if stage == ALL else (stage,)


def rebuilt(
    warehouse: Warehouse, stages: Sequence[str], *, reset_clock: bool, on_step: OnStep = lambda *_: None
) -> Iterator[str]:
    """Rebuild stages, one after the other; gives a line for each.

    Settle needs no rebuild. It has only a clock to reset, and no line when that is not asked for.

    Args:
        warehouse: whose stages.
        stages: which ones.
        reset_clock: the clock begins at the present time, also when the last run was ahead of it.
        on_step: is told how far it is.

    Raises:
        NoWarehouse: the folder is none.
        StageRunning: a stage that must be stopped runs.
        StoreRefused, NoConditionalPuts: the store of the warehouse is not fit for it.
    """
    check_warehouse(warehouse.root)
    check_store(warehouse.spark, warehouse.root)
    latest = wall_ms() if reset_clock else None
    if latest is not None and SETTLE in stages:
        # First: a settle that runs refuses, and no other stage was rebuilt by then.
        reset_settle(warehouse, latest)
        yield f"stage {SETTLE} goes on at the present time; start it again"
    for number, stage in enumerate(stages):
        on_step(f"rebuild {stage}", number, len(stages))
        if stage != SETTLE:
            origin = rebuild(warehouse, stage, Options(LiveClock()), latest=latest)
            yield f"stage {stage} goes on from version {origin.version}; start it again"

"""What is looked at before a stage starts: whose tables they are, whether they and the checkpoint fit, the clock.

Spark repeats the last batch of a checkpoint after a crash, and a stage leaves alone what its tables hold of it. That is
right only when the batch of the checkpoint is the one that the tables hold. Who copies a checkpoint while the stage
runs, or restores one, may have another batch under the same number; then the start is refused.
"""

from collections.abc import Collection, Iterator

from pipeline.config.errors import BatchDiffers, CheckpointBehind, ClockAhead, ForeignOwner, SourceBehind, TableBehind
from pipeline.config.settings import Clock, LiveClock
from pipeline.config.wallclock import wall_ms
from pipeline.delta.checkpoints import Checkpoint, Offset
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.prepared import PREPARED
from pipeline.dispatch.publisher import Publisher

Span = tuple[Offset | None, Offset | None]
"""Where a batch begins and ends in its source, as far as that was noted."""


def check_owner(stage: str, sinks: Collection[Sink], publisher: Publisher | None, checkpoint: Checkpoint) -> None:
    """Refuse tables, and a shelf, that another checkpoint wrote.

    Raises:
        ForeignOwner: one did, and this one was not told to take over.
    """
    for sink in sinks:
        sink.check_owner(checkpoint.owner, checkpoint.origin.after)
    prepared = set() if publisher is None else publisher.owners
    for owner in prepared - {checkpoint.owner, *checkpoint.origin.after}:
        raise ForeignOwner(stage, PREPARED, owner, checkpoint.owner)


def check_batches(stage: str, sinks: Collection[Sink], publisher: Publisher | None, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that is behind its tables or ahead of them, or has another batch under a number.

    Raises:
        CheckpointBehind: a table holds a batch that the checkpoint has not begun.
        BatchDiffers: a table holds a batch that begins or ends elsewhere.
        TableBehind: a table lacks a batch that was written.
    """
    batches, written = checkpoint.batches(), checkpoint.written()
    for sink in sinks:
        last = sink.last if sink.last is not None and sink.last.owner == checkpoint.owner else None
        held = -1 if last is None else last.batch
        if held < written.get(sink.name, -1):
            raise TableBehind(stage, sink.name, held, written[sink.name])
    for table, batch, span in _noted(sinks, publisher, checkpoint.owner):
        if batch >= batches.stop:
            raise CheckpointBehind(stage, table, batch, batches.stop)
        if batch in batches:
            _compare(stage, table, batch, span, _logged(checkpoint, batch, batches))
    if publisher is not None and publisher.top < written.get(PREPARED, 0):
        raise TableBehind(stage, PREPARED, publisher.top, written[PREPARED])


def check_source(stage: str, table: str, newest: int, checkpoint: Checkpoint) -> None:
    """Refuse a source that ends, with its newest version, before the place where the stage goes on.

    Raises:
        SourceBehind: it does.
    """
    check_read(stage, table, newest, checkpoint.end.offset)


def check_read(stage: str, table: str, newest: int, place: tuple[int, int]) -> None:
    """The same of a place: the version that comes next, or one of which some files are taken.

    Raises:
        SourceBehind: the table ends before it.
    """
    version, index = place
    read = version if index >= 0 else version - 1
    if newest < read:
        raise SourceBehind(stage, table, newest, read)


def check_clock(stage: str, clock: Clock, instant: int) -> None:
    """Refuse a live clock when the last batch was at an instant (ms UTC) that is still to come.

    Until that time the clock would stand, and delays would count from it.

    Raises:
        ClockAhead: it was, by more than the lookahead and what a running clock may jump.
    """
    if isinstance(clock, LiveClock):
        wall, allowed = wall_ms(), clock.lookahead_ms + clock.max_jump_ms
        if instant > wall + allowed:
            raise ClockAhead(stage, instant, wall, allowed)


def _noted(sinks: Collection[Sink], publisher: Publisher | None, owner: str | None) -> Iterator[tuple[str, int, Span]]:
    """Table, number and span of the last batch of a checkpoint in each table, and of those that are prepared."""
    for sink in sinks:
        last = sink.last
        if last is not None and last.owner == owner and last.span[1] is not None:
            yield sink.name, last.batch, last.span
    for each in () if publisher is None else publisher.prepared:
        if each.owner == owner:
            yield PREPARED, each.batch, each.span


def _logged(checkpoint: Checkpoint, batch: int, batches: Collection[int]) -> Span:
    """What a batch spans by the offset log, of which Spark keeps the last hundred entries."""
    begin = checkpoint.start(batch).offset if batch - 1 in batches or batch == 0 else None
    return begin, checkpoint.position(batch).offset


def _compare(stage: str, table: str, batch: int, noted: Span, logged: Span) -> None:
    for each, other in zip(noted, logged, strict=True):
        if each is not None and other is not None and each != other:
            raise BatchDiffers(stage, table, batch, noted, logged)

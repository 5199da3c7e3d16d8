"""Take-over of ingest and dispatch: what a dead process left half-committed is finished, under its old name.

The last commits of a stage's tables say where its last batch began and ended, and what decided its rows. So the same
body runs over the same files again, skips what the tables hold, and writes what is missing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import schemas
from pipeline.config.options import Options
from pipeline.config.stages import DISPATCH, INGEST
from pipeline.delta.checkpoints import Origin, Position
from pipeline.delta.logs.entries import Commit, commits, newest, note_of
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.dispatch.plan import NOWHERE, DispatchProgress
from pipeline.dispatch.restore import holds_refused, restore_all
from pipeline.dispatch.stage import Dispatch
from pipeline.ingest.plan import Plan, last_commits_of_ingest, taken
from pipeline.ingest.stage import Ingest
from pipeline.service.clock import given
from pipeline.service.startup import check_read
from pipeline.subscriptions.markers import IngestMemory, Markers
from state.units import EPOCH


@dataclass(frozen=True)
class LastBatch:
    """A batch of a checkpoint that may be lost, as its commits tell it."""

    owner: str
    begin: Position
    end: Position

    def position(self, batch_id: int) -> Position:  # noqa: ARG002 - it knows one batch
        """The end of the batch."""
        return self.end

    def start(self, batch_id: int) -> Position:  # noqa: ARG002
        """The start of the batch."""
        return self.begin

    def wrote(self, table: str, number: int) -> None:
        """The checkpoint may be lost: nothing is remembered in it."""


def take_over_ingest(warehouse: Warehouse, options: Options) -> Origin:
    """Finish the last batch of ingest; give where a new checkpoint begins.

    A batch that took rows wrote `messages` or `rejected_ingest`, so the furthest commit is as far as the inbox was
    taken. `segments` is written last: when it is not as far, the batch is torn, or had nothing to write there.
    """
    _accept_again(warehouse, options)
    last = last_commits_of_ingest(warehouse)
    furthest = next(iter(last.values()), None)
    earlier = given(warehouse.instants(INGEST))[-1:]
    if furthest is None:
        return Origin(instant=max(earlier, default=EPOCH))
    plan, addressed = Plan.of_note(furthest.note), last.get(schemas.SEGMENTS.name)
    if addressed is None or taken(furthest) > taken(addressed):
        past = LastBatch(furthest.owner, Position(plan.now, *plan.begin), Position(plan.now, *plan.source))
        body = Ingest(warehouse, past, options)
        body(warehouse.session, furthest.batch)
    return Origin(*plan.source, max([plan.now, *earlier]), after=owners(last.values()))


def _accept_again(warehouse: Warehouse, options: Options) -> None:
    """Write what `messages` lacks of batches that other tables have: somebody restored it alone, from an older copy."""
    last = last_commit(warehouse, schemas.MESSAGES, INGEST)
    known = None if last is None else Plan.of_note(last.note)
    upto = NOWHERE if known is None else known.source
    after = {schemas.REDELIVERY.name: -1 if known is None else known.redelivery}
    lacking: dict[tuple[str, int], Commit] = {}
    for table in (schemas.SEGMENTS, schemas.REJECTED_INGEST, schemas.REPLACED, schemas.REDELIVERY):
        for commit in _ingested_since(warehouse, table, upto, after.get(table.name, -1)):
            plan = Plan.of_note(commit.note)
            if plan.next_ledger > plan.first_ledger:
                lacking[commit.owner, commit.batch] = commit
    for commit in sorted(lacking.values(), key=taken):
        plan = Plan.of_note(commit.note)
        past = LastBatch(commit.owner, Position(plan.now, *plan.begin), Position(plan.now, *plan.source))
        body = Ingest(warehouse, past, options)
        body.write_again(warehouse.session, plan, commit.owner, commit.batch)


def _ingested_since(warehouse: Warehouse, table: schemas.Table, upto: tuple[int, int], after: int) -> Iterator[Commit]:
    """The commits of ingest to a table, the newest first, that took more of the inbox than up to a place."""
    files, path = warehouse.files, warehouse.path(table)
    last = newest(files, path)
    for version, actions in zip(range(last, after, -1), commits(files, path, last), strict=False):
        noted = note_of(actions) if version else None
        if noted is None or noted.stage != INGEST:
            continue
        if tuple(noted.note["source"]) <= upto:
            return
        yield noted


def unaddressed(warehouse: Warehouse) -> bool:
    """Whether `messages` holds ledgers of whole batches that `segments` does not know, beside the last batch.

    A stage that dies leaves one such batch, which is finished by its plan.
    """
    last = last_commit(warehouse, schemas.MESSAGES, INGEST)
    if last is None:
        return False
    known, end = IngestMemory.addressed(Markers(warehouse)).next_ledger, Plan.of_note(last.note).first_ledger
    if known >= end:
        return False
    between = f"ledger_id >= {known} AND ledger_id < {end}"
    (row,) = ask(warehouse, schemas.MESSAGES, f"SELECT COUNT(*) AS found FROM {{rows}} WHERE {between}")  # noqa: S608 - numbers
    return bool(row["found"])


def take_over_dispatch(warehouse: Warehouse, options: Options, *, whole: bool = False) -> Origin:
    """Finish the last batch of dispatch; give where a new checkpoint begins.

    What is prepared stays on the shelf, for the publisher of the new checkpoint; what lacks files or notes is prepared
    again. A batch that died between `rejected_dispatch` and the shelf is torn: it has taken more of `redelivery` than
    the last one that is noted, or what it refused is still held. Batches after the last that is noted had nothing to
    hand over: their positions were of removed subscriptions, and are looked at again; or all was left out,
    or held, which commits of those tables say.

    Args:
        warehouse: where the tables lie.
        options: as for a start.
        whole: all that is prepared is known to be there, so that it is not looked for.

    Raises:
        SourceBehind: `redelivery` ends before what dispatch has read of it.
    """
    before = DispatchProgress.of(warehouse)
    read = before.done if before.torn is None else before.torn.source
    check_read(DISPATCH, schemas.REDELIVERY.name, newest(warehouse.files, warehouse.path(schemas.REDELIVERY)), read)
    restored = restore_all(warehouse, options.settings, before.furthest, whole=whole)
    refused, plan = before.commits.get(schemas.REJECTED_DISPATCH.name), before.rejected
    after = DispatchProgress.of(warehouse)
    done = max(restored, after.done)
    if (
        refused is not None
        and plan is not None
        and (plan.source > done or holds_refused(warehouse, refused, plan.begin, options.settings.driver_rows))
    ):
        # It begins where the last one ended. When notes of batches between the two are lost, those are in it, too.
        past = LastBatch(refused.owner, Position(EPOCH, *min(plan.begin, done)), Position(EPOCH, *plan.source))
        body = Dispatch(warehouse, past, options)
        body(warehouse.session, refused.batch)
        done = max(done, plan.source)
    writers = tuple(sorted({*before.owners, *after.owners}))
    # Nothing may be handed over in a copy that has `publications` of a later time than `deliveries`.
    return Origin(done[0], done[1], after=writers) if done > NOWHERE else Origin(after=writers)


def owners(commits: Iterable[Commit]) -> tuple[str, ...]:
    """Whose commits they are."""
    return tuple(sorted({commit.owner for commit in commits}))

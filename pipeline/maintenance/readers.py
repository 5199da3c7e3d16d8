"""Where stages stand in the tables that they follow, and what they would need to start again: nothing passes that."""

from dataclasses import asdict, dataclass
from itertools import islice

import schemas
from pipeline.config.stages import INGEST, SETTLE
from pipeline.delta.checkpoints import SOURCES, Checkpoint
from pipeline.delta.logs.entries import commits, newest, note_of
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.dispatch.plan import DispatchProgress
from pipeline.ingest.plan import Plan, last_commits_of_ingest
from pipeline.settle.plan import FOLLOWED, reached, unfinished, written
from pipeline.settle.plan import Plan as Settling
from pipeline.settle.plan import PlanFile as SettlingFile
from pipeline.settle.undone import begins_behind
from pipeline.storage.files import Files
from pipeline.subscriptions.registry import Registry
from pipeline.subscriptions.scheduleplans import NEVER, PlanFile

DEFINING = (schemas.SCHEDULES, schemas.CALENDARS)
"""The tables by whose versions a planner plans, also what it has missed; in the order of `Versions`."""
_FAR_BEHIND = 500
"""A stage that is more commits behind holds all rows of its table."""


READERS = {table.name: stage for stage, table in SOURCES.items()}
"""Which stage, that is a query of Spark's, follows which table."""
SETTLED = {table.name: name for name, table in FOLLOWED.items()}
"""The tables that settle follows, and by which name its notes tell the version up to which it has read each."""


def unread_from(warehouse: Warehouse, table: schemas.Table) -> int | None:
    """The version of a table from which on its readers need log and files; None: no stage follows it."""
    if table is schemas.SUBSCRIPTIONS:
        return _registry_read(warehouse)
    if table in DEFINING:
        versions = (each[DEFINING.index(table)] for each in PlanFile(warehouse.files, warehouse.root).needed)
        return min((each for each in versions if each != NEVER), default=None)
    stage, needed = READERS.get(table.name), list[int]()
    if stage is not None:
        needed.append(_unread_by(warehouse, table, stage))
    if table.name in SETTLED:
        settled = settled_upto(warehouse)
        needed += [] if settled is None else [settled[SETTLED[table.name]] + 1]
    return min(needed, default=None)


def settled_upto(warehouse: Warehouse) -> dict[str, int] | None:
    """The version of each table up to which settle has read it, for good.

    None: it reads nothing, because nobody acknowledges, and nothing waits that got another due time.

    The note of its last commit to `cursors` says it, which is the last one of a batch: of one that was torn apart
    nothing counts. Before its first commit it begins with what is released after subscriptions began to acknowledge.
    A batch that was begun and is not there yet begins where its plan says, also when nobody acknowledges any more.
    """
    read, begun = _settled(warehouse), begun_batch(warehouse)
    if begun is None:
        return read
    return {name: min(version, (read or {}).get(name, version)) for name, version in asdict(begun.begin).items()}


def begun_batch(warehouse: Warehouse) -> Settling | None:
    """The plan of a batch of settle that is not in `cursors`, and will be repeated as it was; None: there is none."""
    files = warehouse.files
    noted = SettlingFile(files, warehouse.checkpoint(SETTLE)).plan
    last = last_commit(warehouse, schemas.CURSORS, SETTLE)
    if noted is None and last is not None and "begin" not in last.note:
        # An earlier version of settle, which noted no plan.
        return None
    done = None if last is None else Settling.of_note(last.note)
    behind = begins_behind(warehouse) if done is None else done.segments
    plans = [noted] if noted is not None else written(files, warehouse.root, behind)
    begun = unfinished(plans, done, lambda plan: reached(files, warehouse.root, plan))
    # Settle looks for its first batch when somebody acknowledges.
    known = begun is None or noted is not None or last is not None or Registry(warehouse).newest().acknowledging
    return begun if known else None


def _settled(warehouse: Warehouse) -> dict[str, int] | None:
    """The version of each table up to which settle has read it, by the last batch in `cursors` alone."""
    known, last = Registry(warehouse).newest().acknowledging, last_commit(warehouse, schemas.CURSORS, SETTLE)
    if last is not None and (known or last.note.get("follows")):
        return {name: int(last.note.get(name, 0 if name == "commands" else -1)) for name in SETTLED.values()}
    if not known:
        return None
    latest = newest(warehouse.files, warehouse.path(schemas.REDELIVERY))
    begins = (latest if line.policies.ack_after is None else line.policies.ack_after for line in known.values())
    return {"events": -1, "released": min(begins), "refused": -1, "commands": 0}


def _registry_read(warehouse: Warehouse) -> int:
    """The oldest version of the registry that a stage may read: the one that its last batch followed."""
    ingest, torn = last_commit(warehouse, schemas.SEGMENTS, INGEST), DispatchProgress.of(warehouse).torn
    needed = [0 if ingest is None else int(ingest.note.get("registry", 0))]
    needed += [] if torn is None else [torn.registry]
    last, begun = last_commit(warehouse, schemas.CURSORS, SETTLE), begun_batch(warehouse)
    if last is not None and settled_upto(warehouse) is not None:
        needed.append(int(last.note.get("registry", 0)))
    needed += [] if begun is None else [begun.registry]
    return max(0, min(needed))


def _unread_by(warehouse: Warehouse, table: schemas.Table, stage: str) -> int:
    """The version from which on a query of Spark's needs its source.

    That is one version before the batch that its checkpoint committed last, because Spark looks at that batch again
    when it starts, and before the batch that a take-over would finish. Without a checkpoint it is the first version.
    """
    needed = _committed(warehouse.files, warehouse.checkpoint(stage))
    if table is schemas.INBOX:
        needed = min(needed, _begin_of_ingest(warehouse))
    elif table is schemas.REDELIVERY:
        needed = min(needed, _begin_of_dispatch(warehouse))
    # A stream that waits for a version looks for the one before it, too: it is there when the log was not cut.
    return max(0, needed - 1)


def _begin_of_ingest(warehouse: Warehouse) -> int:
    """The version of the inbox at which a take-over begins: where the furthest batch did, which it may finish."""
    return max((Plan.of_note(each.note).begin[0] for each in last_commits_of_ingest(warehouse).values()), default=0)


def _begin_of_dispatch(warehouse: Warehouse) -> int:
    """The version of `redelivery` at which a take-over begins: behind what is prepared, or where a torn batch did."""
    standing = DispatchProgress.of(warehouse)
    begins = [standing.done] if standing.torn is None else [standing.done, standing.torn.begin]
    return min(begins)[0]


@dataclass(frozen=True)
class Unread:
    """What a stage has yet to read of a table, or may have to read again.

    Attributes:
        files: the paths, as the log has them, of files in which such rows may be; a compaction makes such files too.
        batches: the batches of the writer that wrote such rows.
    """

    files: frozenset[str] = frozenset()
    batches: frozenset[int] = frozenset()


def unread(warehouse: Warehouse, table: schemas.Table) -> Unread | None:
    """What a table's reader has yet to read; None: so much that it is not asked for."""
    version = unread_from(warehouse, table)
    if version is None:
        return Unread()
    files, path = warehouse.files, warehouse.path(table)
    behind = newest(files, path) - version
    if behind > _FAR_BEHIND:
        return None
    kept = list(islice(commits(files, path, version + behind), behind + 1))
    names = (each["add"]["path"] for actions in kept for each in actions if "add" in each)
    notes = (note_of(actions) for actions in kept)
    return Unread(frozenset(names), frozenset(note.batch for note in notes if note is not None))


def _committed(files: Files, folder: str) -> int:
    """The version at which the last committed batch of a checkpoint began."""
    checkpoint = Checkpoint(files, folder)
    batches = [int(name) for name in files.names(f"{folder}/commits") if name.isdigit()]
    position = checkpoint.start(max(batches)) if batches else checkpoint.origin.position
    return position.version

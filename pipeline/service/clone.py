"""Another warehouse with what waits in one: its tables as they were at one instant, and none of its checkpoints.

The copy has what would be there if all stages had been killed at that instant, and their checkpoints were lost. So it
goes on as a rebuild lets a warehouse go on, which is done here, too. The source may run meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath

from pipeline.client.subscribing.policysetting import set_policy, unset_policy
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.config.errors import BadValue, PipelineError
from pipeline.config.options import OnStep, Options
from pipeline.config.routes import NotInDriver, SessionNeeded
from pipeline.config.settings import LiveClock, Settings
from pipeline.config.spelling import command_line
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE
from pipeline.config.wallclock import wall_ms
from pipeline.delta.copying import Count, FileGone, copy_log, link_files, versions
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.tables import bring_up_to_date
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.prepared import Prepared, PreparedStore, not_replaced
from pipeline.service import clone_asof
from pipeline.service.rebuild import rebuild, reset_settle
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import FOLDER as GUARD_TABLES
from pipeline.subscriptions.guards import Guard
from pipeline.subscriptions.scheduleplans import PlanFile
from pipeline.subscriptions.settled import SettledMark, raise_to, read_mark
from schemas import DELIVERIES, HELD, INBOX, SEGMENTS, SUBSCRIPTIONS, TABLES
from state.units import Ms

NOTE = "_clone.json"
"""The file of a copy that says of what it is one."""
_LOOKS, _PAUSE_S, _ATTEMPTS = 200, 0.01, 3
_FOLDERS = ("_clock", "_imports", "_sources", GUARD_TABLES)
"""Folders beside the tables that belong to them: instants that were given, the notes of imports and sources, and tables
that guards read."""
_SINKS = "_sinks"
_MOST = 10_000_000
"""Rows that this process may hold: a batch that was torn is finished here."""
_SINK = ("sink", "sink_after", "sink_refused")
"""The policies that say where a subscription publishes."""


class SourceBusy(PipelineError):
    """The stages of a warehouse commit faster than anybody can look at all tables. Stop the job, or try again later."""

    def __init__(self, root: str) -> None:
        super().__init__(f"{root}: no two looks saw the same versions of all tables; stop the job, or try again later")
        self.root = root


class SourceIncomplete(PipelineError):
    """A warehouse lacks a file that its copy would need. `delayline doctor` names it and what to do."""

    def __init__(self, root: str, what: str) -> None:
        super().__init__(f"{root}: {what}; see: {command_line(root, 'doctor')}")
        self.root, self.what = root, what


@dataclass(frozen=True)
class SinkOff:
    """A subscription that publishes nothing from the copy, and the address of its sink."""

    topic: str
    subscription: str
    sink: str


@dataclass(frozen=True)
class Cloned:
    """What was copied.

    Attributes:
        source: the warehouse.
        target: its copy.
        at: of which instant it is, ms UTC by the clock of this machine.
        as_of: what it holds is what was pending then, ms UTC; None: what was pending at that instant.
        versions: of the tables of the source, by name.
        linked: data files that both have; they take no room.
        copied: data files that were copied, since there are no such names where they lie.
        sinks: subscriptions that have no sink any more.
    """

    source: str
    target: str
    at: int
    as_of: int | None
    versions: Mapping[str, int]
    linked: int
    copied: int
    sinks: tuple[SinkOff, ...] = ()


@dataclass(frozen=True)
class _Moment:
    """A warehouse at one instant.

    Attributes:
        at: when that was, ms UTC.
        versions: of its tables.
        notes: of what is prepared, by the names of the files.
        mark: of what is settled.
        plan: how far schedules are planned, as the planner wrote it; None: nothing was ever planned.
    """

    at: Ms
    versions: Mapping[str, int]
    notes: Mapping[str, str]
    mark: SettledMark
    plan: str | None

    @property
    def prepared(self) -> list[Prepared]:
        """What is prepared."""
        return not_replaced([Prepared.loads(text) for text in self.notes.values()])

    @property
    def more(self) -> dict[str, list[str]]:
        """Files that no version names, by table."""
        hidden = [file.path for each in self.prepared for part in each.parts for file in part.files]
        held = [file.path for each in self.prepared if each.held is not None for file in each.held.added]
        return {DELIVERIES.name: hidden, HELD.name: held}


def clone(
    root: str,
    target: str,
    *,
    as_of: int | None = None,
    keep_sinks: bool = False,
    warehouse: Callable[[str], Warehouse] = Warehouse,
    on_step: OnStep = lambda *_: None,
) -> Cloned:
    """Make another warehouse with the same subscriptions and the same messages that wait.

    Nothing of the source changes. When anything fails, nothing is left of the copy.

    Args:
        root: the warehouse; its job may run.
        target: a folder that is empty, or not there.
        as_of: the copy holds what was pending at this instant, ms UTC, as `pending` counts it; None: what is pending.
        keep_sinks: subscriptions publish from the copy as well. Otherwise it publishes nothing.
        warehouse: makes a warehouse of the folder of the copy: with a session where only Spark can write.
        on_step: is told how far it is.

    Raises:
        BadValue: the target is not empty, or one of the two lies in the other; or the tables do not tell what was
            pending at `as_of`.
        NoWarehouse: there is nothing to copy.
        SourceBusy: the tables change too fast.
        SourceIncomplete: a file of the source is gone.
        StageRunning: somebody has started a stage on the copy meanwhile.
    """
    files = Files()
    _check_target(files, root, target)
    open_table(root, INBOX)
    _check_as_of(root, as_of)
    try:
        for attempt in range(_ATTEMPTS):
            moment, count = _look(files, root), Count()
            # Maintenance, or a command, may have been between the first look and this one.
            _check_as_of(root, as_of)
            try:
                _copy(files, (root, target), moment if as_of is None else replace(moment, notes={}), count, on_step)
                break
            except FileGone as error:
                # Maintenance may have been in between. The next look knows what it left.
                files.delete_folder(target)
                if attempt == _ATTEMPTS - 1:
                    raise SourceIncomplete(root, f"{error} is not there") from error
        _guard_by_own_tables(root, target)
        sinks = () if keep_sinks else _without_sinks(target)
        if keep_sinks:
            _copy_folder(files, root, target, _SINKS)
        made = warehouse(target)
        if as_of is not None:
            _set_back(made, as_of, on_step)
        _begin(made, root, as_of, on_step)
        done = Cloned(root, target, moment.at, as_of, moment.versions, count.linked, count.copied, sinks)
        files.write(f"{target}/{NOTE}", json.dumps(asdict(done)))
    except BaseException:
        files.delete_folder(target)
        raise
    return done


def _check_as_of(root: str, as_of: int | None) -> None:
    if as_of is not None:
        clone_asof.check(root, as_of)


def _check_target(files: Files, root: str, target: str) -> None:
    here, there = (PurePath(files.readable(each) or each) for each in (root, target))
    if here == there or here in there.parents or there in here.parents:
        raise BadValue("to", target, f"a folder that is not {root}, not in it, and not around it")
    if files.names(target):
        raise BadValue("to", target, "a folder that is empty, or is not there")


def _look(files: Files, root: str) -> _Moment:
    """All tables, and what belongs to them, at one instant: no stage has committed between two looks.

    Raises:
        SourceBusy: one always has.
    """
    there = [table for table in TABLES if files.names(f"{path_of(root, table)}/_delta_log")]
    ours = {table.name: path_of(root, table) for table in there if table.writer in ALL_STAGES}
    others = {table.name: path_of(root, table) for table in there if table.name not in ours}
    inbox = {INBOX.name: others.pop(INBOX.name)}
    known = versions(files, ours, {})
    for _ in range(_LOOKS):
        # What others append in between is as if it came at this instant. The inbox first: who cancels, and sends anew
        # then, is seen to have done both, or the first alone. The plan says what a number in the inbox means.
        notes = PreparedStore(files, path_of(root, DELIVERIES)).texts()
        at, mark, appended = wall_ms(), read_mark(files, root), versions(files, inbox, {})
        plan = PlanFile(files, root).text
        appended |= versions(files, others, {})
        seen = versions(files, ours, known)
        if seen == known:
            return _Moment(Ms(at), {**appended, **seen}, notes, mark, plan)
        known = seen
        time.sleep(_PAUSE_S)
    raise SourceBusy(root)


def _copy(files: Files, folders: tuple[str, str], moment: _Moment, count: Count, on_step: OnStep) -> None:
    """Copy the tables, and what belongs to them; `segments` last: without it there is no warehouse.

    Raises:
        FileGone: a file went meanwhile.
        SourceIncomplete: a table has files that only Spark knows: there are deletion vectors, for instance.
    """
    root, target = folders
    tables = sorted((each for each in TABLES if each.name in moment.versions), key=lambda each: each is SEGMENTS)
    for number, table in enumerate(tables):
        on_step("logs", number, len(tables))
        copy_log(files, path_of(root, table), path_of(target, table), moment.versions[table.name])
    for number, table in enumerate(tables):
        on_step("files", number, len(tables))
        more, strict = moment.more.get(table.name, ()), table.writer in ALL_STAGES or table is SUBSCRIPTIONS
        try:
            link_files(files, path_of(root, table), path_of(target, table), count, more, strict=strict)
        except NotInDriver as error:
            raise SourceIncomplete(root, f"only Spark can tell which files {table.name} has") from error
    store = PreparedStore(files, path_of(target, DELIVERIES))
    for each in moment.prepared:
        store.put(each)
    if moment.mark != SettledMark():
        raise_to(files, target, moment.mark)
    if moment.plan is not None:
        PlanFile(files, target).put(moment.plan)
    for name in _FOLDERS:
        _copy_folder(files, root, target, name)


def _copy_folder(files: Files, root: str, target: str, name: str) -> None:
    """Copy the files of a folder beside the tables, and of the folders in it, if it is there."""
    for path in _inside(files, f"{root}/{name}"):
        try:
            files.copy(f"{root}/{name}/{path}", f"{target}/{name}/{path}")
        except FileNotFoundError:
            continue


def _inside(files: Files, folder: str) -> Iterator[str]:
    if not files.exists(folder):
        return
    yield from files.sizes(folder)
    for name in files.folders(folder):
        yield from (f"{name}/{each}" for each in _inside(files, f"{folder}/{name}"))


def _without_sinks(root: str) -> tuple[SinkOff, ...]:
    """Take the sinks off all subscriptions; which had one."""
    found = [each for each in subscriptions(root) if each.policies.sink is not None]
    for each in found:
        unset_policy(root, each.topic, *_SINK, subscription=each.name)
    return tuple(SinkOff(each.topic, each.name, str(each.policies.sink)) for each in found)


def _guard_by_own_tables(root: str, target: str) -> None:
    """Let guards that read tables in the folder of the source read the copies of these."""
    for each in subscriptions(target):
        guard, inside = Guard.of(each.policies.guard or "true", each.policies.guard_tables), f"{root}/{GUARD_TABLES}/"
        if any(path.startswith(inside) for path in guard.tables.values()):
            own = {name: path.replace(inside, f"{target}/{GUARD_TABLES}/", 1) for name, path in guard.tables.items()}
            set_policy(target, each.topic, each.name, guard_tables=own)


def _set_back(warehouse: Warehouse, as_of: int, on_step: OnStep) -> None:
    """Set a copy back to an instant, ms UTC; one of an earlier version may lack tables."""
    on_step("set back", 0, 1)
    warehouse.files.delete_folder(f"{warehouse.root}/_clock")
    bring_up_to_date(warehouse)
    clone_asof.set_back(warehouse.root, as_of)


def _begin(warehouse: Warehouse, root: str, as_of: int | None, on_step: OnStep) -> None:
    """Let the stages of a copy begin where its tables stand, or at an instant.

    Raises:
        SourceIncomplete: what dispatch has prepared is not there as a whole.
    """
    options = Options(LiveClock(), replace(Settings(), driver_rows=_MOST))
    stages, latest = (INGEST, SCHEDULE, DISPATCH), None if as_of is None else Ms(as_of)
    if latest is not None:
        reset_settle(warehouse, latest)
    for number, stage in enumerate(stages):
        on_step("index", number, len(stages))
        try:
            rebuild(warehouse, stage, options, latest=latest, whole=True)
        except SessionNeeded as error:
            raise SourceIncomplete(root, f"its stage {stage} can only be finished by Spark: start it once") from error

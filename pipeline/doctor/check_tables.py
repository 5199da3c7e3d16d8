"""Checks of each table by itself: columns, protocol, log, files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
from deltalake import DeltaTable

from pipeline.delta.deltars import path_of
from pipeline.delta.logs.features import CONSTRAINT, switched_on, to_drop, unknown
from pipeline.delta.logs.restored import remedy_of, restored_since_note
from pipeline.doctor.look import FOLDER, Finding, Log, Look, Opened, error, note, warning
from pipeline.storage.files import Files
from schemas import IDENTITY, INBOX, SUBSCRIPTIONS, TABLES, Table

_READ = 2_000
"""So many of the newest entries of each log are read; of older ones it is only seen that they are not empty."""
_COPY = "stop all stages and restore the warehouse from a copy (docs/operations.md, Restore)"

_UNMANAGED = "take the feature off in the catalog, or make the table external (docs/catalogs.md)"


def tables(look: Look) -> Iterator[Finding]:
    """Each table is there, has its columns, asks nothing unknown of its writers, and has a whole log and its files."""
    for name in look.missing:
        text = "there is no such table"
        yield error("table_missing", name, text, look.command("init") + f", when it was never there; else {_COPY}")
    for table in TABLES:
        opened = look.tables.get(table.name)
        if opened is not None:
            yield from _log(opened)
            if opened.error:
                yield error("table_unreadable", table.name, opened.error, _UNMANAGED if opened.managed else _COPY)
            else:
                yield from _columns(look, table, opened)
                yield from _features(look, table, opened)
                yield from _restored(look, table)
                yield from _properties(look, table, opened.delta)
                yield from _files(opened)


def _columns(look: Look, table: Table, opened: Opened) -> Iterator[Finding]:
    found, wanted = _fields(opened.delta.schema().to_json()), _fields(table.columns.json())
    # The next start of a job gives them to a warehouse of an earlier version.
    missing = [name for name in wanted if name not in found and name not in IDENTITY]
    changed = [name for name in wanted if name in found and not _fits(found[name], wanted[name])]
    remedy = _restore(look, table, opened.log) if missing or changed else ""
    for name in missing:
        yield error("column_missing", table.name, f"column {name} is missing", remedy)
    for name in changed:
        text = f"column {name} is {_type(found[name])}, it must be {_type(wanted[name])}"
        yield error("column_changed", table.name, text, remedy)
    more = sorted(found.keys() - wanted.keys())
    if more:
        text = f"columns that nobody reads: {', '.join(more)}"
        yield note("column_added", table.name, text)


def has_columns(table: Table, schema: str) -> bool:
    """Whether a version with this schema, as JSON, can be read as the contract of its table says."""
    found = _fields(schema)
    wanted = ((name, field) for name, field in _fields(table.columns.json()).items() if name not in IDENTITY)
    return all(name in found and _fits(found[name], field) for name, field in wanted)


def _fields(schema: str) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in json.loads(schema)["fields"]}


def _fits(field: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a column can be read and written as one that is wanted."""
    return field["type"] == wanted["type"] and bool(field["nullable"] or not wanted["nullable"])


def _restore(look: Look, table: Table, log: Log) -> str:
    """What brings columns back, or takes partitions off: the version before all that has others, or is partitioned."""
    bad = log.newest
    for version in reversed(log.versions[-_READ:]):
        metadata = next((each["metaData"] for each in log.actions(version) or () if each.get("metaData")), None)
        if metadata is not None:
            if has_columns(table, metadata["schemaString"]) and not metadata.get("partitionColumns"):
                break
            bad = version
    if bad - 1 not in log.versions:
        return _COPY
    then = ", then append again what came since" if table is INBOX else ""
    command = f"RESTORE TABLE delta.`{look.root}/{table.name}` TO VERSION AS OF {bad - 1}"
    return f"while no stage runs: {command}{then}; or {_COPY}"


def _type(field: Mapping[str, Any]) -> str:
    kind = field["type"] if isinstance(field["type"], str) else json.dumps(field["type"])
    return kind if field["nullable"] else f"{kind} NOT NULL"


def _features(look: Look, table: Table, opened: Opened) -> Iterator[Finding]:
    """Tables that others write may ask for what Spark knows; the stages write theirs without it."""
    if table in (INBOX, SUBSCRIPTIONS):
        return
    asked, metadata = opened.delta.protocol(), opened.delta.metadata()
    protocol = {
        "minReaderVersion": asked.min_reader_version,
        "minWriterVersion": asked.min_writer_version,
        "readerFeatures": asked.reader_features,
        "writerFeatures": asked.writer_features,
    }
    found = unknown(protocol, metadata.partition_columns, metadata.configuration)
    if found is not None:
        text = f"the table asks for {found[0]}, allowed: {found[1]}"
        change = f"ALTER TABLE delta.`{look.root}/{table.name}`"
        commands = [f"{change} DROP FEATURE {name}" for name in to_drop(protocol)]
        for name in switched_on(metadata.configuration):
            _, of_constraint, constraint = name.partition(CONSTRAINT)
            less = f"DROP CONSTRAINT {constraint}" if of_constraint else f"UNSET TBLPROPERTIES ('{name}')"
            commands.append(f"{change} {less}")
        back = _restore(look, table, opened.log) if metadata.partition_columns or not commands else ""
        yield error("feature_unknown", table.name, text, "; ".join([*commands, *([back] if back else [])]))


def _restored(look: Look, table: Table) -> Iterator[Finding]:
    """The notes of the stages tell of rows that are not there any more, or that are there again."""
    path = path_of(look.root, table)
    version = restored_since_note(Files(), path, table)
    if version is not None:
        text = f"version {version} is a RESTORE: the rows are not what the stages wrote"
        yield error("table_restored", table.name, text, remedy_of(path, version))


def _properties(look: Look, table: Table, delta: DeltaTable) -> Iterator[Finding]:
    """A warehouse made by an older release lacks properties that bound the logs of new ones (decision 0070)."""
    found = delta.metadata().configuration
    for name, value in table.properties.items():
        if name not in found:
            text = f"{name} is not set, new warehouses have '{value}': checkpoints of the log may take seconds"
            remedy = f"ALTER TABLE delta.`{look.root}/{table.name}` SET TBLPROPERTIES ('{name}' = '{value}')"
            yield warning("property_unset", table.name, text, remedy)


def _log(opened: Opened) -> Iterator[Finding]:
    name, log = opened.table.name, opened.log
    torn = sorted({*log.empty(), *_unreadable(log)})
    if torn:
        text = f"versions {_few(torn)} of the log are empty or cut off"
        yield error("entry_torn", name, text, _COPY)
    begin = _begin(log)
    gaps = sorted(set(range(begin, log.newest + 1)) - set(log.versions))
    if gaps:
        yield error("entry_missing", name, f"versions {_few(gaps)} of the log are missing", _COPY)
    below = [version for version in log.versions if version < begin]
    if below:
        yield from _below(name, log, below)
    pointed = log.last_checkpoint()
    if pointed is not None and pointed not in log.checkpoints:
        text = f"_last_checkpoint points to version {pointed}, and there is no such checkpoint"
        yield error("checkpoint_missing", name, text, f"delete {name}/{FOLDER}/_last_checkpoint, or {_COPY}")


def _unreadable(log: Log) -> list[int]:
    last = range(max(0, log.newest - _READ + 1), log.newest + 1)
    readable = log.read(last.start, last.stop - 1)
    return [version for version in log.versions if version in last and version not in readable]


def _begin(log: Log) -> int:
    """The version with which the log begins: 0, or the entries that lead up to its first checkpoint."""
    if log.whole or not log.checkpoints:
        return 0
    begin, there = log.checkpoints[0], set(log.versions)
    while begin - 1 in there:
        begin -= 1
    return begin


def _below(name: str, log: Log, below: Sequence[int]) -> Iterator[Finding]:
    """Versions before the beginning of a log are nobody's: whoever committed them was told that all is well."""
    files = [file for version in below for file in log.added(version) or ()]
    text = (
        f"versions {_few(below)} lie before the beginning of the log: no reader sees them, nor their {len(files)} files"
    )
    remedy = "whoever wrote them writes again; then delete these entries"
    yield (error if name == INBOX.name and files else warning)("entry_below", name, text, remedy)


def _files(opened: Opened) -> Iterator[Finding]:
    """One listing for all files, whatever storage the table lies on."""
    found = opened.files.get_file_info(pyarrow.fs.FileSelector("", recursive=True))
    sizes = {info.path: info.size for info in found if info.is_file}
    # Not `pa.table`, which loads pandas.
    named = pa.RecordBatchReader.from_stream(opened.delta.get_add_actions()).read_all()
    paths = [unquote(path) for path in named.column("path").to_pylist()]
    live = dict(zip(paths, named.column("size_bytes").to_pylist(), strict=True))
    gone = [path for path in live if path not in sizes and "://" not in path]
    if gone:
        text = f"{len(gone)} of {len(live)} files are gone: {_few(gone)}"
        yield error("file_missing", opened.table.name, text, f"bring them back from a copy, or {_COPY}")
    cut = [path for path, size in live.items() if path in sizes and sizes[path] != size]
    if cut:
        text = f"{len(cut)} of {len(live)} files have another size than the log says: {_few(cut)}"
        yield error("file_changed", opened.table.name, text, f"bring them back from a copy, or {_COPY}")


def _few(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

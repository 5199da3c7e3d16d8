"""The tables of a warehouse as Delta folders: create, read, follow, append."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from deltalake.exceptions import DeltaError

from pipeline.config.errors import BrokenVersion
from pipeline.config.lazyspark import deltaspark, raised
from pipeline.config.paths import is_s3
from pipeline.config.sizing import DEFAULT_RATE, SizingInputs, is_limited, memory_here
from pipeline.delta import deltars
from pipeline.delta.deltars import check_protocol
from pipeline.delta.logs.entries import is_whole, log_files
from pipeline.delta.logs.features import check_unmanaged
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.logs.restored import TableRestored, restored_since_note
from pipeline.delta.properties import PROPERTIES, rate_of, segment_ms_of, segment_properties
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.storage.files import Files
from schemas import (
    COMMANDS,
    DELIVERIES,
    HELD,
    IDENTITY,
    INBOX,
    MESSAGES,
    OLDER,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    SCHEDULES,
    SEGMENTS,
    TABLES,
    Table,
)

_GROWN = (
    *(INBOX, MESSAGES, SEGMENTS, REDELIVERY, HELD, DELIVERIES, PUBLICATIONS),
    *(REJECTED_INGEST, REJECTED_DISPATCH, COMMANDS, SCHEDULES),
)
"""Tables whose contracts have got optional columns since the first warehouses were made."""
_LATER = {
    INBOX.name: IDENTITY,
    REJECTED_INGEST.name: (*IDENTITY, *OLDER),
    MESSAGES.name: (*IDENTITY, "put_off_from", "latest_due"),
    SCHEDULES.name: ("calendar",),
}
"""The columns that some of them have got; of the others it is all optional ones. A column that was there from the start
is not added: who dropped or renamed it has to know."""
_LOOKS = 8
"""So many logs are looked at at once."""


def create_all(warehouse: Warehouse, *, rate: int = DEFAULT_RATE, segment_ms: int | None = None) -> None:
    """Create the tables that are missing. Those that exist get the optional columns that they lack.

    With nothing missing it is a look at the logs.

    Args:
        warehouse: where the tables lie.
        rate: messages a second that the busiest topic is expected to get; sizes are chosen for it.
        segment_ms: span of due time that one state value covers, fixed for the warehouse's life. None: by the rate.

    Raises:
        BadSetting: the rate is not between 1 and 10 million, or the span not between a second and a day.
    """
    extra, files = segment_properties(rate, segment_ms), warehouse.files
    for table in TABLES:
        if not _is_there(files, warehouse.path(table)):
            _create(warehouse, table, PROPERTIES | table.properties | (extra if table is SEGMENTS else {}))
        elif table in _GROWN:
            _add_columns(warehouse, table)


def bring_up_to_date(warehouse: Warehouse) -> None:
    """Give a warehouse the tables and columns that it lacks because an earlier version of this project made it.

    A folder that is no warehouse stays as it is. When nothing is missing, this is a look at the logs.

    Raises:
        CatalogManaged: a catalog manages a table.
        TableRestored: somebody has restored a table that the stages write.
    """
    if _is_there(warehouse.files, warehouse.path(SEGMENTS)):
        create_all(warehouse)
        check_tables(warehouse.files, warehouse)


def check_tables(files: Files, warehouse: Warehouse) -> None:
    """Refuse a warehouse of which a catalog manages a table, or of which somebody restored one that the stages write.

    Raises:
        CatalogManaged: a catalog does.
        TableRestored: somebody did.
    """
    # In a store each look is a request or two.
    with ThreadPoolExecutor(_LOOKS) as pool:
        list(pool.map(partial(_check_table, files, warehouse), TABLES))


def _check_table(files: Files, warehouse: Warehouse, table: Table) -> None:
    path = warehouse.path(table)
    # Whoever reads the table says what is torn; some stages go on without its newest version.
    with suppress(BrokenVersion):
        check_protocol(files, path, table)
    version = restored_since_note(files, path, table)
    if version is not None:
        raise TableRestored(table.name, version, path)


def segment_ms(warehouse: Warehouse) -> int:
    """The span of a segment, as fixed when the warehouse was created, in ms.

    Raises:
        BadSetting: somebody else made the table.
    """
    return segment_ms_of(_properties(warehouse))


def place(warehouse: Warehouse, cores: int | None = None) -> SizingInputs:
    """What the sizes of a warehouse follow from.

    Args:
        warehouse: the warehouse.
        cores: tasks that run at once; None: as the session has them.

    Raises:
        BadSetting: the warehouse states a rate that is none, or no span of its segments.
    """
    properties, at_once = _properties(warehouse), cores or warehouse.spark.sparkContext.defaultParallelism
    return SizingInputs(rate_of(properties), segment_ms_of(properties), at_once, memory_here(), is_limited())


def _properties(warehouse: Warehouse) -> dict[str, str]:
    """The properties of `segments`."""
    return dict(TableLog(warehouse.session, warehouse.path(SEGMENTS)).head().metadata["configuration"])


def _is_there(files: Files, path: str) -> bool:
    """Whether a folder has a log. Only of one that was cut all names are asked for; those are few."""
    return is_whole(files, path) or any(file.is_entry for file in log_files(files.names(f"{path}/_delta_log")))


def _create(warehouse: Warehouse, table: Table, properties: Mapping[str, str]) -> None:
    try:
        _make(warehouse, table, properties)
    except raised("PySparkException", DeltaError):
        # Two processes that start together make the same tables, and Delta refuses the second.
        if not _is_there(warehouse.files, warehouse.path(table)):
            raise


def _make(warehouse: Warehouse, table: Table, properties: Mapping[str, str]) -> None:
    if is_s3(warehouse.root) or Files().local(warehouse.root) is not None:
        # It takes no job. And in S3 Delta would replace what another one creates (decision 0024).
        deltars.create(warehouse.root, table, properties)
        return
    building = (
        deltaspark.DeltaTable.createIfNotExists(warehouse.spark)
        .location(warehouse.path(table))
        .addColumns(table.schema)
    )
    for key, value in properties.items():
        building = building.property(key, value)
    building.execute()


def _add_columns(warehouse: Warehouse, table: Table) -> None:
    """Add the optional columns of a contract that a table lacks. Rows that were there have NULL in them.

    Raises:
        CatalogManaged: a catalog manages the table.
    """
    log, path = TableLog(warehouse.session, warehouse.path(table)), warehouse.path(table)
    while (wanted := grown(table, (head := log.head()).metadata)) is not None:
        check_unmanaged(table.name, head.protocol)
        # Two processes may start at the same time: who comes second looks again.
        Appender(warehouse.session, path, table).describe(head.version, wanted)


def grown(table: Table, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `metaData` of a table with the optional columns of its contract that it lacks, each in its place.

    None when it lacks none. What else is there stays.
    """
    schema = json.loads(metadata["schemaString"])
    contract, fields = json.loads(table.columns.json())["fields"], list(schema["fields"])
    later = _LATER.get(table.name, _names(contract))
    optional = (each for each in contract if each["nullable"] and each["name"] in later)
    missing = [each for each in optional if each["name"] not in _names(fields)]
    for each in missing:
        place = _names(contract).index(each["name"])
        before = [name for name in _names(contract[:place]) if name in _names(fields)]
        fields.insert(_names(fields).index(before[-1]) + 1 if before else 0, each)
    return {**metadata, "schemaString": json.dumps(schema | {"fields": fields})} if missing else None


def _names(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    return [each["name"] for each in fields]

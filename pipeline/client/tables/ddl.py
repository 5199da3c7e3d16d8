"""The tables of a warehouse for a catalog: the SQL by which it learns of them. Nothing is changed here.

A statement names the folder and no columns: who asks the catalog finds them in the log, also those that come later.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.errors import BadValue, check_text
from pipeline.delta.deltars import open_table, path_of
from pipeline.storage.files import Files
from schemas import TABLES


@dataclass(frozen=True)
class Registration:
    """A table as a catalog is told of it.

    Attributes:
        table: its name.
        location: the address of its folder.
        statement: the SQL, without a semicolon.
    """

    table: str
    location: str
    statement: str


def registrations(root: str, schema: str | None = None) -> list[Registration]:
    """How a catalog is told of each table: as an external one, which stays when it is dropped there.

    Args:
        root: the warehouse.
        schema: where the tables are named, as `S` or `CATALOG.S`; None: where the session is that gets the SQL.

    Raises:
        BadValue: a part of the schema has no name.
        NoWarehouse: a table is not there.
        CatalogManaged: a catalog manages a table.
    """
    prefix = "".join(f"{_name(part)}." for part in _parts(schema))
    found = []
    for table in TABLES:
        open_table(root, table)
        here = Files().local(path_of(root, table))
        # A path without a scheme would lie on the file system that the catalog takes for the usual one.
        location = path_of(root, table) if here is None else f"file://{here.absolute()}"
        statement = f"CREATE TABLE IF NOT EXISTS {prefix}{_name(table.name)} USING delta LOCATION {_literal(location)}"
        found.append(Registration(table.name, location, statement))
    return found


def _parts(schema: str | None) -> Sequence[str]:
    if schema is None:
        return ()
    check_text("schema", schema)
    parts = schema.split(".")
    if not all(part.strip() for part in parts):
        raise BadValue("schema", schema, "S or CATALOG.S")
    return parts


def _name(text: str) -> str:
    """A name in SQL of Spark, whatever is in it."""
    return "`" + text.replace("`", "``") + "`"


def _literal(text: str) -> str:
    """A text in SQL of Spark."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

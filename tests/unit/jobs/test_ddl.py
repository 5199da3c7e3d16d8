"""The SQL that registers a warehouse in a catalog."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.tables.ddl import registrations
from pipeline.config.errors import BadValue
from schemas import TABLES
from tests.support.client import new_warehouse
from tests.support.invoked import output, run


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse, in a folder whose name has an apostrophe and a space."""
    folder = tmp_path / "ann's lake"
    folder.mkdir()
    return new_warehouse(folder)


def test_each_table_is_registered_by_its_folder(root: str) -> None:
    """External: what a catalog drops stays. Columns are not named, so the statement is right when a table grows."""
    lines = output(root, "ddl", "--schema", "main.de`lays").splitlines()
    assert len(lines) == len(TABLES)
    place = root.replace("'", "\\'")
    assert lines[0] == (
        f"CREATE TABLE IF NOT EXISTS `main`.`de``lays`.`inbox` USING delta LOCATION 'file://{place}/inbox';"
    )


def test_without_a_schema_the_session_says_where(root: str) -> None:
    """A session has a catalog and a schema of its own."""
    assert output(root, "ddl").startswith("CREATE TABLE IF NOT EXISTS `inbox` USING delta ")


def test_scripts_get_name_and_address_of_each_table(root: str) -> None:
    """For catalogs that take no SQL."""
    found = json.loads(output(root, "ddl", "--json"))
    assert [each["table"] for each in found] == [table.name for table in TABLES]
    assert found[0]["location"] == f"file://{root}/inbox"
    assert [f"{each['statement']};" for each in found] == output(root, "ddl").splitlines()


@pytest.mark.parametrize("schema", ["", " ", "main.", ".delays", "a..b"])
def test_a_schema_without_a_name_is_refused(root: str, schema: str) -> None:
    """As of a variable of a script that is not set."""
    with pytest.raises(BadValue) as refused:
        registrations(root, schema)
    assert (refused.value.field, refused.value.value) == ("schema", schema)
    assert run(root, "ddl", "--schema", schema).exit_code == 2


def test_a_folder_without_tables_is_no_warehouse(tmp_path: Path) -> None:
    """SQL that registers nothing would fail later, in the catalog."""
    result = run(str(tmp_path), "ddl")
    assert (result.exit_code, "has no table" in result.stderr) == (1, True)

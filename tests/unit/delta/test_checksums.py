"""Delta's version checksums of a table that delta-rs made."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta import deltars
from pipeline.delta.logs.checksums import checksum, put_first_checksum
from pipeline.storage.files import Files
from schemas import SUBSCRIPTIONS, TABLES

FIRST = f"_delta_log/{0:020d}.crc"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    create_all(str(tmp_path))
    return str(tmp_path)


def test_each_table_of_a_new_warehouse_has_a_checksum(root: str) -> None:
    """Without them Delta runs a job for each table that a stage opens."""
    pytest.importorskip("pyspark", reason="it makes the warehouse")
    for table in TABLES:
        content = json.loads(Path(root, table.name, FIRST).read_text())
        assert (content["numFiles"], content["tableSizeBytes"]) == (0, 0)
        assert [field["name"] for field in json.loads(content["metadata"]["schemaString"])["fields"]] == (
            table.schema.names
        )


def test_who_makes_the_same_table_at_the_same_moment_makes_it_once(tmp_path: Path) -> None:
    """Stages in processes of their own start together; a second entry would be there for ever."""
    roots = [str(tmp_path / str(number)) for number in range(10)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda root: deltars.create(root, SUBSCRIPTIONS, {}), [each for each in roots for _ in range(4)]))
    assert [DeltaTable(f"{root}/{SUBSCRIPTIONS.name}").version() for root in roots] == [0] * len(roots)
    assert all(Path(root, SUBSCRIPTIONS.name, FIRST).exists() for root in roots)


def test_a_checksum_that_a_power_cut_left_empty_is_read_from_the_first_entry(root: str) -> None:
    """They are not waited for when they are written."""
    path = f"{root}/{SUBSCRIPTIONS.name}"
    whole = checksum(Files(), path, 0)
    Path(path, FIRST).write_text("")
    assert whole is not None
    assert checksum(Files(), path, 0) == whole


def test_a_later_version_without_a_checksum_has_none(root: str) -> None:
    """What it added is known to nobody, so no other one may carry it on."""
    subscribe(root, Subscription("orders", "checkout"))
    assert checksum(Files(), f"{root}/{SUBSCRIPTIONS.name}", 1) is None


def test_a_table_that_was_made_with_rows_gets_no_sums_of_an_empty_one(root: str) -> None:
    """Somebody else may have made it."""
    path = Path(root, SUBSCRIPTIONS.name)
    entry = path / f"_delta_log/{0:020d}.json"
    entry.write_text(entry.read_text() + "\n" + json.dumps({"add": {"path": "a"}}))
    (path / FIRST).unlink()
    put_first_checksum(Files(), str(path))
    assert not (path / FIRST).exists()

"""Broken files and foreign paths in the inbox where Spark reads it: they are listed as where arrays are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.delta.deltars import path_of
from schemas import INBOX, REJECTED_INGEST
from tests.support.forged import INFO, add, file_of, version
from tests.support.stream import Step, World, advance, append, check, delivered, message, restart, same, subscribe
from tests.support.together import Played, play_together

T0 = 1_700_000_000_000


def left(world: World) -> None:
    """A stranger leaves one good file among others that lead out, are gone, are torn, or are no Parquet."""
    root = world.warehouse.root
    folder = Path(path_of(root, INBOX).removeprefix("file:"))
    names = ("good", "no", "torn")
    actions = [add(f"{name}.parquet", file_of(root, INBOX, f"{name}.parquet", [message(name)])) for name in names]
    (folder / "no.parquet").write_bytes(b"nothing")
    data = bytearray((folder / "torn.parquet").read_bytes())
    data[4:200] = bytes(196)
    (folder / "torn.parquet").write_bytes(data)
    actions += [add("gone.parquet"), add("../messages/x.parquet"), add("/etc/passwd")]
    version(root, INBOX, INFO, *actions)


def listed(world: World) -> None:
    """Each of them has a row."""
    rows = world.warehouse.read(REJECTED_INGEST).collect()
    found = sorted((row["reason"], row["properties"]["file"]) for row in rows)
    same(
        found,
        [
            ("broken_file", "gone.parquet"),
            ("broken_file", "no.parquet"),
            ("broken_file", "torn.parquet"),
            ("foreign_path", "../messages/x.parquet"),
            ("foreign_path", "/etc/passwd"),
        ],
    )


def script() -> list[Step]:
    """Spark reads, then the stages begin anew."""
    return [
        restart(driver_rows=0),
        subscribe("t", "s"),
        advance(T0),
        check(left),
        append(message("beside")),
        advance(T0 + 2_000),
        delivered("good", "beside"),
        check(listed),
        restart(driver_rows=0),
        append(message("later")),
        advance(T0 + 4_000),
        delivered("good", "beside", "later"),
        check(listed),
    ]


def played() -> Played:
    """The run."""
    return play_together({"t": script()})


@pytest.mark.soak
def test_a_broken_file_stands_in_nobodys_way_where_spark_reads() -> None:
    """Spark fails on such a file as a whole, and would at each start again."""
    played().shows("t")

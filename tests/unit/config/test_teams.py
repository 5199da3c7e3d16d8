"""Three teams on one disk, made by the commands of `docs/security.md`: each reads and writes what is its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tests.support.invoked import invoke
from tests.support.pages import block_of, text_of

USERS = {"orders": 61_001, "billing": 61_002, "mail": 61_003}
"""Numbers that no account has: rights need no names."""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@contextmanager
def being(user: str, umask: int = 0o027) -> Iterator[None]:
    """This process has the rights of somebody meanwhile. What it has imported it need not read again."""
    groups, before = os.getgroups(), os.umask(umask)
    os.setgroups([])
    os.setegid(USERS[user])
    os.seteuid(USERS[user])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        os.umask(before)


def may(user: str, work: Callable[[], object]) -> bool:
    """Whether somebody can do something."""
    with being(user):
        try:
            work()
        except (OSError, DeltaError):
            return False
    return True


@dataclass(frozen=True)
class Disk:
    """A folder in the place of `/data`."""

    folder: Path

    def type(self, line: str) -> None:
        """What a line of the page does there."""
        match shlex.split(line.replace("/data/", f"{self.folder}/")):
            case ["sudo", "install", *words]:
                numbers = [str(USERS.get(each, each)) for each in words]
                subprocess.run(["install", *numbers], check=True)  # noqa: S603, S607 - of a page
            case ["sudo", "-u", user, "sh", "-c", command]:
                umask, _, ours = command.partition("; ")
                with being(user, int(umask.removeprefix("umask "), 8)):
                    assert invoke(shlex.split(ours)[1:]).exit_code == 0
            case _:
                raise AssertionError(line)


@pytest.fixture(scope="module")
def disk() -> Iterator[Disk]:
    """The commands of the page were typed. A folder of pytest's lets nobody else pass."""
    made = Disk(Path(mkdtemp(prefix="delayline-teams-")))
    try:
        made.folder.chmod(0o755)
        used = str(made.folder / "used")
        # Whoever imports something later may not read it.
        assert invoke(["init", "--warehouse", used]).exit_code == 0
        assert invoke(["send", "--topic", "t", "--warehouse", used, "hello"]).exit_code == 0
        for line in block_of("security.md", "umask 027") + block_of("security.md", "orders-to-billing"):
            made.type(line)
        yield made
    finally:
        rmtree(made.folder)


def test_nobody_reads_or_writes_what_is_of_another_team(disk: Disk) -> None:
    """Neither what `init` has made nor what comes later; its own team may do both."""
    for user in USERS:
        with being(user):
            assert (
                invoke(["send", "--topic", "t", "--warehouse", str(disk.folder / user / "warehouse"), "a"]).exit_code
                == 0
            )
    for user in USERS:
        log = disk.folder / user / "warehouse/inbox/_delta_log"
        for who in USERS:
            for work in (log.stat, (log / f"{1:020d}.json").read_bytes, (log / "x").touch):
                assert may(who, work) is (who == user)
    found = [path for user in USERS for path in (disk.folder / user).rglob("*")]
    assert [path for path in found if path.stat().st_mode & 0o007] == []


def test_a_table_for_another_team_is_read_by_it_and_written_by_its_owner_only(disk: Disk) -> None:
    """Also what is appended later; the third team does not see it."""
    named = re.search(r"`/data/(\S+/table)`", text_of("security.md"))
    assert named is not None
    table, rows = str(disk.folder / named[1]), pa.table({"name": ["a"]})
    for _ in range(2):
        with being("orders"):
            write_deltalake(table, rows, mode="append")
    assert [user for user in USERS if may(user, lambda: DeltaTable(table).to_pyarrow_table())] == ["orders", "billing"]
    assert [user for user in USERS if may(user, lambda: write_deltalake(table, rows, mode="append"))] == ["orders"]
    assert not may("billing", lambda: rmtree(table))

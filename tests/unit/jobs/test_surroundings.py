"""Any folder, locale, terminal, user: a command works, or says in one line why not, and has done nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa

from jobs import terminal
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.client.tables.partitions import topic_partitions
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import open_table
from schemas import INBOX
from tests.support.client import new_warehouse
from tests.support.invoked import invoke
from tests.support.modules import ROOT
from tests.support.surroundings import ENVIRONMENTS, FLAGS, MASKS, NAMES, REFUSED, TOPICS, commands, through

EACH_TIME = "all at once"
"""A pass through all commands takes seconds: this one is made each time, the others with the long tests."""
NOBODY = "54321"


def folder(base: Path, name: bytes) -> str:
    """A folder of any name."""
    return os.fsdecode(os.fsencode(base) + b"/" + name)


def sent(root: str) -> int:
    """How many messages are in the inbox."""
    return int(pa.table(open_table(root, INBOX).to_pyarrow_table()).num_rows)


def works(results: list[dict[str, Any]], root: str) -> None:
    """All commands have done what they are for, and said nothing else."""
    assert [each for each in results if each["code"] or each["trace"]] == []
    assert len(results) == len(list(commands(root)))
    assert (sent(root), [each.name for each in subscriptions(root)]) == (2, ["acked"])
    assert topic_partitions(root, "parts") == ["parts-partition-0", "parts-partition-1"]


def process(
    root: str, environment: Mapping[str, str | None], flags: Sequence[str] = (), user: str = ""
) -> list[dict[str, Any]]:
    """The same in a process of its own."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    stated = {name: value for name, value in known.items() if value is not None}
    words = [sys.executable, *flags, "-m", "tests.support.surroundings", root, *([user] if user else [])]
    done = subprocess.run(words, env=stated, cwd=Path(root).parent, check=False, capture_output=True)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def each(table: Iterable[str]) -> list[Any]:
    """The surroundings of a table: one that has most of the others in it, and with the long tests all of them."""
    return [pytest.param(name, marks=() if name == EACH_TIME else pytest.mark.soak) for name in table]


@pytest.mark.parametrize("name", each(NAMES))
def test_a_warehouse_may_have_any_name_that_all_libraries_know(tmp_path: Path, name: str) -> None:
    """Nobody chooses a folder by what a URL is."""
    root = folder(tmp_path, NAMES[name])
    works(list(through(root)), root)
    client = Client(root)
    try:
        client.create_producer("t").send(b"by the client")
    finally:
        client.close()
    assert sent(root) == 3
    assert [os.fsencode(each.name) for each in tmp_path.iterdir()] == [NAMES[name].partition(b"/")[0]]


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED.keys())
def test_a_name_that_would_become_another_one_is_refused_before_anything_is_made(tmp_path: Path, name: bytes) -> None:
    """A message would be sent to a folder that nobody reads, or a table be made half."""
    for root in (folder(tmp_path, name), folder(tmp_path, name + b"/below")):
        results = list(through(root))
        assert [(each["code"], each["lines"]) for each in results if each["words"][0] != "doctor"] == [(2, 1)] * (
            len(results) - 1
        )
        assert not any(each["trace"] for each in results)
        with pytest.raises(BadValue):
            create_all(root)
        with pytest.raises(BadValue):
            send(root, [OutgoingMessage("t", b"x")])
        with pytest.raises(BadValue):
            Client(root).create_producer("t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", ["", " "])
def test_a_variable_that_is_not_set_is_no_warehouse(root: str) -> None:
    """It would be the root of the file system."""
    assert [each["code"] for each in through(root)] == [2] * len(list(commands(root)))


def test_a_name_counts_with_the_folder_in_which_somebody_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is made whole."""
    here = tmp_path / "a[b]"
    here.mkdir()
    monkeypatch.chdir(here)
    assert invoke(["init", "-w", "w"]).exit_code == 2
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("mask", MASKS, ids=oct)
@pytest.mark.soak
def test_any_umask_will_do(tmp_path: Path, mask: int) -> None:
    """Of the user who made a warehouse, for the same user."""
    root, before = str(tmp_path / "w"), os.umask(mask)
    try:
        results = list(through(root))
    finally:
        os.umask(before)
    if os.getuid() == 0 or mask != 0o777:
        works(results, root)


@pytest.mark.parametrize("name", each({**ENVIRONMENTS, **FLAGS}))
def test_any_locale_terminal_and_way_to_start_python_will_do(tmp_path: Path, name: str) -> None:
    """A service is started by supervisors with next to nothing set."""
    root = str(tmp_path / "w")
    works(process(root, ENVIRONMENTS.get(name, {}), FLAGS.get(name, ())), root)


def test_a_job_begins_where_there_are_no_docstrings() -> None:
    """The package of Delta for Spark ended it under `-OO`: a decorator of Spark reads docstrings."""
    command = [sys.executable, "-OO", "-c", "import jobs.commands.run, jobs.commands.startcache"]
    subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603 - our own


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.soak
def test_a_user_without_a_name_will_do(tmp_path: Path) -> None:
    """Containers run as a number that no list of users has."""
    base = tmp_path / "base"
    base.mkdir()
    for above in (tmp_path, *list(tmp_path.parents)[:-2]):
        above.chmod(0o755)
    root = str(base / "w")
    works(process(root, {"HOME": None, "TMPDIR": str(base)}, user=NOBODY), root)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.soak
def test_what_may_not_be_written_is_one_line_and_nothing_is_half_done(tmp_path: Path) -> None:
    """Somebody may read a warehouse and not write to it."""
    base = tmp_path / "base"
    base.mkdir()
    for above in (tmp_path, *list(tmp_path.parents)[:-2]):
        above.chmod(0o755)
    root = str(base / "w")
    new_warehouse(root)
    Path(root).chmod(0o755)
    subscribe(root, Subscription("t", "s"))
    before = {path: path.stat().st_mtime_ns for path in Path(root).rglob("*")}
    results = process(root, {"TMPDIR": str(base)}, user=NOBODY)
    assert not any(each["trace"] for each in results)
    reads = {"receive", "pending", "doctor", "subscriptions", "sinks", "sources", "consumers", "commands", "init"}
    reads |= {"stop", "clear"}
    for each in results:
        first, *more = each["words"]
        read = first in reads or more[0] in ("show", "list", "put-back")
        assert each["lines"] <= 1 or read
    assert {path: path.stat().st_mtime_ns for path in Path(root).rglob("*")} == before


DONE = {"send": "send -t t x", "subscribe": "subscribe -t t -s other", "policy": "policy set -t t --fixed-delay 5s"}
LOST = {">/dev/full": 1, ">&-": 0, "<&- >&- 2>&-": 0, "| true": 0}
"""Where output gets lost, and how many lines a command says of it."""


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        pytest.param(command, lost, marks=() if (command, lost) == ("send", ">/dev/full") else pytest.mark.soak)
        for command in DONE
        for lost in LOST
    ],
)
def test_what_is_done_is_no_failure_when_nobody_can_read_it(tmp_path: Path, command: str, lost: str) -> None:
    """A script that sends again after a failure would send twice."""
    root = new_warehouse(tmp_path / "w")
    subscribe(root, Subscription("t", "s"))
    text = f"set -o pipefail; {sys.executable} -m jobs.cli {DONE[command]} -w {root} {lost}"
    done = subprocess.run(["bash", "-c", text], cwd=ROOT, check=False, capture_output=True)  # noqa: S603, S607 - our own
    assert (done.returncode, len(done.stderr.splitlines())) == (0, LOST[lost])
    assert sent(root) == (command == "send")
    assert len(subscriptions(root)) == 1 + (command == "subscribe")


def test_names_of_topics_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    """What is sent to one comes to its subscription only; a name that nothing could follow is refused at once."""
    root = new_warehouse(tmp_path / "w")
    taken = []
    for topic in TOPICS:
        if invoke(["subscribe", "-w", root, "-t", topic, "-s", "s", "--start", "earliest"]).exit_code == 0:
            taken.append(topic)
            assert invoke(["send", "-w", root, "-t", topic, topic]).exit_code == 0
    rows = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
    assert sorted((row["topic"], row["payload"].decode()) for row in rows) == sorted((each, each) for each in taken)
    assert sorted(each.topic for each in subscriptions(root)) == sorted(taken)


def test_what_a_full_disk_did_not_take_is_printed_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that only prints fails then, and is given again."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(terminal, "_to_nowhere", lambda _: None)
        disk.setattr("typer.echo", full)
        with pytest.raises(terminal.OutputFailed, match="No space left"):
            terminal.echo("text")
    terminal.echo("text")
    assert capsys.readouterr().out == "text\n"

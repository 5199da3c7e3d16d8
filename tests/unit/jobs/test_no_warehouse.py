"""Every command on a folder that is no warehouse says so, with the whole path and the command that makes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

pytest.importorskip("deltalake", reason="the command needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs import cli
from pipeline.client.commanding.commands import undo
from pipeline.client.commanding.outcomes import outcomes
from pipeline.config.errors import NoWarehouse
from tests.support.client import new_warehouse
from tests.support.invoked import invoke

MAKING = {"init", "replay"}
"""They make a warehouse where none is."""
SAID = {
    "topic": "t", "subscription": "s", "to": "tomorrow", "span": "1h", "command_id": "c", "stage": "all", "out": "f",
    "service": "pulsar://h", "admin": "http://h", "names": "paused", "payload": "x", "key": "k", "target": "t2",
    "name": "a", "days": "2026-12-25", "country": "IT", "years": "2026",
}  # fmt: skip
"""What commands must be told."""
NEED_A_KEY = {"cancel", "reschedule", "shift", "release", "trace"}


def commands(group: Any, *before: str) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - Typer's own types are private
    """The words of each command that works on a warehouse, with what it must be told."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, *before, name)
        elif any(param.name == "warehouse" for param in each.params) and name not in MAKING:
            yield (*before, name, *_said(each, name))


def _said(command: Any, name: str) -> Iterator[str]:  # noqa: ANN401 - as above
    for param in command.params:
        is_asked = (param.required and param.name != "warehouse") or (param.name == "key" and name in NEED_A_KEY)
        if is_asked or (name, param.name) == ("send", "payload"):
            is_option = param.param_type_name == "option"
            yield from ([param.opts[0]] if is_option else [])
            yield SAID[param.name]


ALL = list(commands(typer.main.get_command(cli.app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_folder_that_is_no_warehouse_is_named_as_a_whole(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`commands` said that there was none, `undo` spoke of the id, and `config show` of a path from nowhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    result = invoke([*words, "--warehouse", "typo"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"delayline init --warehouse {tmp_path / 'typo'}\n" in result.stderr
    assert not (tmp_path / "typo").exists()
    result = invoke([*words, "--warehouse", "file"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{str(tmp_path / 'file')!r} is a file, allowed: a folder" in result.stderr


def test_all_commands_are_there() -> None:
    """A list that was empty would show nothing."""
    assert len(ALL) >= 30


def test_a_program_learns_it_too(tmp_path: Path) -> None:
    """A warehouse of an earlier version may lack the table of commands, and no other one."""
    with pytest.raises(NoWarehouse):
        outcomes(str(tmp_path / "typo"))
    with pytest.raises(NoWarehouse):
        undo(str(tmp_path / "typo"), "c")


def test_somebody_at_a_terminal_is_told_on_which_warehouse_a_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path, or a variable that was exported, may be another one. A program reads nothing of it."""
    new_warehouse(str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELAYLINE_WAREHOUSE", "here")
    assert invoke(["topics"]).stderr == ""
    monkeypatch.setattr("jobs.terminal.sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    result = invoke(["topics"])
    assert (result.stderr, result.exit_code) == (f"warehouse {tmp_path / 'here'}\n", 0)
    assert "warehouse" not in result.stdout
    assert invoke(["status"]).stderr == ""

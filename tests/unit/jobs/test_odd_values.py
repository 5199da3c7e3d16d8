"""Values of the command line that people type by mistake: refused with what is allowed, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

pytest.importorskip("deltalake", reason="the command needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from typer.testing import CliRunner

from jobs import cli
from jobs.commands.durations import BadText, duration_ms, span_ms
from jobs.commands.values import since
from pipeline.client.commanding.commands import cancel
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from schemas import MESSAGES
from tests.support.client import message_row, new_warehouse, put

JANUARY = 1_769_817_600_000


def test_a_date_without_hyphens_is_a_date_and_seconds_are_refused() -> None:
    """Both meant a day of 1970, so a seek brought everything again."""
    assert since("20260131") == since("2026-01-31") == since(str(JANUARY)) == JANUARY
    for text in ("1769817600", "0", "5", "9" * 30, "9" * 5_000, "20261331", "", "٢٠٢٦٠١٣١"):
        with pytest.raises(BadText):
            since(text)


@pytest.mark.parametrize("text", ["999999999999999d", "-999999999999999d", "366001d"])
def test_a_duration_beyond_all_calendars_is_refused(text: str) -> None:
    """It was an `OverflowError`."""
    with pytest.raises(BadText):
        (span_ms if text.startswith("-") else duration_ms)(text)
    assert duration_ms("366000d") == 366_000 * 86_400_000


def test_a_stop_of_what_is_no_warehouse_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    """A mistyped folder was made, and the job went on."""
    result = CliRunner().invoke(cli.app, ["stop", "--warehouse", str(tmp_path / "typo")])
    assert result.exit_code == 1
    assert not (tmp_path / "typo").exists()


def test_a_condition_that_fails_on_a_row_is_a_bad_value(tmp_path: Path) -> None:
    """It was told as an error of a library, with the code of a failure."""
    new_warehouse(str(tmp_path))
    subscribe(str(tmp_path), Subscription("t", "s"))
    put(str(tmp_path), MESSAGES, message_row(1, 0, 0, "t") | {"message_key": "abc"})
    with pytest.raises(BadValue):
        cancel(str(tmp_path), "t", "s", where="CAST(message_key AS BIGINT) > 5", dry_run=True)


@pytest.mark.parametrize(("command", "code"), [("doctor", 130), ("send", 130), ("receive", 130), ("run", 0)])
def test_who_is_interrupted_does_not_say_that_all_is_well(
    command: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`delayline doctor` that was ended by hand had the code of a sound warehouse."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(typer.core.TyperGroup, "invoke", interrupted)
    group = typer.main.get_command(cli.app)
    context = typer.Context(group)
    context.invoked_subcommand = command
    with pytest.raises(typer.Exit) as ended:
        group.invoke(context)
    assert ended.value.exit_code == code

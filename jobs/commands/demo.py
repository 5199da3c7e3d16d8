"""`delayline demo`: a minute live, a year in minutes, then two workers that share a subscription."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.commands.spark import session
from jobs.demo import chart, flights, live, sharing, year
from jobs.web.report import report as report_of
from pipeline.config.errors import PipelineError
from pipeline.config.session import Machine
from pipeline.config.spelling import command_line
from pipeline.config.wallclock import wall_ms

_EVE = "2013-02-08"
"""The day before the storm."""
_EVE_MS = int(datetime.fromisoformat(_EVE).replace(tzinfo=UTC).timestamp()) * 1_000


class CheckFailed(PipelineError):
    """The tables are not what the flights, or the orders, call for. That is a defect: keep the folder and report it."""

    def __init__(self, found: str, folder: Path) -> None:
        """Say what was found, and where the tables are."""
        super().__init__(f"the check failed: {found}; the tables are in {folder}")
        self.found, self.folder = found, folder


class FolderTaken(PipelineError):
    """The folder for the demo holds something already. Name another one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"output = {str(folder)!r}, allowed: a folder that is empty or does not exist")
        self.folder = folder


@dataclass(frozen=True)
class Choices:
    """What the command line says: where to, how many flights (None: all), the step, whether to begin live."""

    output: Path | None
    count: int | None
    step_ms: int
    live: bool


def run(choices: Choices, echo: Callable[[str], None]) -> None:
    """Play all parts.

    Raises:
        FolderTaken: the output folder is not empty.
        NoJava, NoSession: Spark did not start.
        StageFailed: a stage failed.
        CheckFailed: the result is not what it should be.
    """
    begun = time.monotonic()
    folder = _folder(choices.output)
    echo(f"Tables and picture go to {folder}. Starting Spark.")
    with session("delayline demo", Machine()) as spark:
        if choices.live:
            echo("\nPart one: the live clock")
            live.play(spark, str(folder / "live"), echo)
        data = flights.load(choices.count)
        echo(f"\nPart two: {len(data.flights):,} flights of 2013, two messages each, under the virtual clock")
        root = str(folder / "year")
        storm = year.play(spark, root, year.prepare(folder, data), choices.step_ms)
        echo("On 8 February a storm was announced for the next day. Somebody looked which reminders that day had,")
        echo("let them come two hours later, and took that back for one airline:")
        for line in storm.lines():
            echo(line)
        found = year.verdict(root, data)
        echo(f"Check in pandas: {found}")
        if not found.good or found.moved != storm.moved:
            raise CheckFailed(f"{found}; to be moved were {storm.moved:,}", folder)
        echo("Two schedules ran beside them, over both changes of clocks, one of them in quiet hours:")
        came = year.recurred(root)
        for line in came.lines():
            echo(line)
        if came.wrong:
            raise CheckFailed(f"{came.wrong} times at which something recurs are wrong", folder)
        picture = folder / "due_load.png"
        chart.draw(chart.load(year.due_times(root)), picture)
        echo(f"Due load, week by hour: {picture}")
        year.ask(spark, root, echo)
        echo("\nThe tables tell more, without Spark. What was waiting on the eve of the storm:")
        echo(command_line(root, "pending", "--as-of", _EVE))
        report = folder / "report.html"
        report.write_text(report_of(root, wall_ms(), as_of=_EVE_MS), encoding="utf-8")
        echo(f"The same as a report for a browser: {report}")
        echo(f"And as a page: {command_line(root, 'web')}")
        if choices.live:
            echo("\nPart three: two workers share a subscription, and acknowledge")
            settled = sharing.play(spark, str(folder / "orders"), echo)
            for line in settled.lines():
                echo(line)
            if not settled.good:
                raise CheckFailed("orders were not settled", folder)
    echo(f"\nDone in {time.monotonic() - begun:.0f} s. The tables stay in {folder}: any Delta reader can ask more.")


def _folder(output: Path | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="delayline-demo-"))
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FolderTaken(output)
    output.mkdir(parents=True, exist_ok=True)
    return output

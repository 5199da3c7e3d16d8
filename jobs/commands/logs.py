"""How a service tells what it does: in lines for people, in lines of JSON, or only when something is wrong."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from jobs.terminal import echo
from pipeline.config.printed import json_record, log_to_stderr


class LogLevel(StrEnum):
    """From which level on messages are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a message is written."""

    TEXT = "text"
    JSON = "json"


def reporter(level: LogLevel, form: LogFormat, *, quiet: bool) -> Callable[[str], None]:
    """Set up the log of a process; give a function that tells a line of news on the standard error.

    Args:
        level: from which level on messages are logged.
        form: of messages and of news.
        quiet: news are not told.
    """
    if (level, form) != (LogLevel.WARNING, LogFormat.TEXT):
        log_to_stderr(level.name, as_json=form is LogFormat.JSON)
    if quiet:
        return lambda _: None
    return _json if form is LogFormat.JSON else stamped


def stamped(text: str) -> None:
    """A line of a service: what it says is news, not output. A terminal that was closed takes none."""
    echo(f"{datetime.now(UTC):%H:%M:%S}  {text}", err=True)


def _json(text: str) -> None:
    echo(json_record(time.time(), "INFO", "delayline", text), err=True)

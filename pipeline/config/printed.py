"""Texts of strangers as one line of a terminal, or of a log, shows them."""

import json
import logging

from pipeline.config.spelling import iso_text


def printable(text: str) -> str:
    """A text as one line shows it: line ends, escape sequences and the like are spelled out.

    A line of JSON stays one with the same content: it has no character below U+0020.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _spelled(each) for each in text)


def _spelled(character: str) -> str:
    if character < "\x20":
        return character.encode("unicode_escape").decode()
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class Printable(logging.Formatter):
    """A message is one line, and those of a stack trace begin with blanks: no text in them can pass for another one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of logging
        """The message."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - the name of logging
        """The stack trace."""
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))  # type: ignore[arg-type] # as given


class JsonLines(logging.Formatter):
    """A message is a line of JSON, for those who gather logs."""

    def format(self, record: logging.LogRecord) -> str:
        """The record."""
        trace = self.formatException(record.exc_info) if record.exc_info else None
        return json_record(record.created, record.levelname, record.name, record.getMessage(), trace)


def json_record(seconds: float, level: str, logger: str, message: str, trace: str | None = None) -> str:
    """A line of a log as JSON, in ASCII: it has no control character. The time is seconds since the epoch."""
    record = {"at": iso_text(int(seconds * 1_000)), "level": level, "logger": logger, "message": message}
    return json.dumps(record if trace is None else record | {"trace": trace})


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Let messages from a level on come to the standard error. Of Spark's bridge only warnings come."""
    handler = logging.StreamHandler()
    text = Printable("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("py4j").setLevel(max(logging.WARNING, logging.getLogger().level))


def print_logs() -> None:
    """Let what comes to the standard error, when nobody has set up logging, come in lines that can be shown."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Printable())

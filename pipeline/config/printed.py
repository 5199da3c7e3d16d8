"""Texts of strangers as one line of a terminal, or of a log, shows them."""

import logging


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


def print_logs() -> None:
    """Let what comes to the standard error, when nobody has set up logging, come in lines that can be shown."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Printable())

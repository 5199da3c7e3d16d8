"""What a check has to say."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is.

    `error`: a promise is broken, or a start will be refused. `warning`: somebody should look. `note`: nothing is wrong.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that somebody should know.

    Attributes:
        check: the name of the check; `examine` knows it.
        what: what is wrong, in one word for scripts; the same word means the same thing in every release.
        severity: how bad it is.
        subject: the table, the stage, or the topic and subscription.
        text: what was seen, for people.
        remedy: what to do; a command where one heals it. Empty: nothing.
    """

    check: str
    what: str
    severity: Severity
    subject: str
    text: str
    remedy: str = ""

    @property
    def same(self) -> tuple[str, str, str]:
        """Two findings of one kind about one subject are the same, whatever their figures are."""
        return self.check, self.what, self.subject


def error(what: str, subject: str, text: str, remedy: str) -> Finding:
    """A broken promise, or a start that will be refused."""
    return Finding("", what, Severity.ERROR, subject, text, remedy)


def warning(what: str, subject: str, text: str, remedy: str) -> Finding:
    """What may become an error."""
    return Finding("", what, Severity.WARNING, subject, text, remedy)


def note(what: str, subject: str, text: str) -> Finding:
    """What is not wrong."""
    return Finding("", what, Severity.NOTE, subject, text)

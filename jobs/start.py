"""The entry point of the command: it is loaded when an interrupt leaves no trace of that."""

from jobs.interrupts import ends_at_once


def main() -> None:
    """Load the command, and run it."""
    ends_at_once()
    from jobs.cli import main as run  # noqa: PLC0415 - it takes a third of a second

    run()

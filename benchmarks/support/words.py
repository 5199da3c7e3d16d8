"""What a benchmark is told on its command line."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Iterable


def check_names(parser: ArgumentParser, what: str, names: Iterable[str], known: Collection[str]) -> None:
    """End with an error of the parser when one of the names is not known.

    `choices` of argparse would compare a default of several names as if it were one.
    """
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no {what} {unknown[0]!r}; there are {', '.join(known)}")


def check_only(parser: ArgumentParser, text: str, workloads: Collection[str]) -> None:
    """End with an error of the parser when no workload has the text of `--only` in its name."""
    if not any(text in workload for workload in workloads):
        parser.error(f"no workload has {text!r} in its name; there are {', '.join(workloads)}")

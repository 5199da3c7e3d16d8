"""`delayline doctor`: what was found, as text or JSON."""

from collections.abc import Iterator

from jobs.commands.jsonform import json_line
from pipeline.doctor.examine import CHECKS, Report
from pipeline.doctor.look import Finding, Severity


def report(found: Report) -> Iterator[str]:
    """Lines for people: one a check, below it what was found, with its remedy."""
    for name, check in CHECKS.items():
        mine = [each for each in found.findings if each.check == name]
        wrong = [each for each in mine if each.severity is not Severity.NOTE]
        # `python -OO` leaves out docstrings.
        about = (check.__doc__ or name).splitlines()[0]
        yield f"{'WRONG' if wrong else 'ok   '}  {name:<12} {about}"
        for each in mine:
            yield from _lines(each)
    errors, warnings = (_count(found, severity) for severity in (Severity.ERROR, Severity.WARNING))
    yield f"{errors} errors, {warnings} warnings" if errors or warnings else "Nothing is wrong."


def as_json(found: Report) -> str:
    """The same for scripts."""
    return json_line({"healthy": found.healthy, "findings": found.findings, "versions": found.versions})


def _lines(finding: Finding) -> Iterator[str]:
    yield f"       {finding.severity.value}: {finding.subject}: {finding.text}"
    if finding.remedy:
        yield f"       remedy: {finding.remedy}"


def _count(found: Report, severity: Severity) -> int:
    return sum(each.severity is severity for each in found.findings)

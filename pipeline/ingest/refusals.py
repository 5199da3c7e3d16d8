"""What is refused is said while it happens, in the log of the job."""

import logging

from pipeline.ingest.core.terms import Counts

_LOG = logging.getLogger(__name__)


def say_refused(counts: Counts) -> None:
    """Say how many messages of a batch are refused, and why; nothing when none is."""
    if counts.rejected:
        why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.reasons.items()))
        _LOG.warning("inbox: messages are refused, by reason: %s", why)

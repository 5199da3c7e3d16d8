"""What a table may ask of those who write to it. No Spark: whoever reads a log can judge."""

from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = {"appendOnly", "invariants"}
"""What a writer of version 2 knows; a table of a later version names its features."""


def unknown(protocol: Mapping[str, Any], partitions: Sequence[str]) -> tuple[object, str] | None:
    """What a table asks for beyond plain files with plain statistics, and what is allowed; None when nothing.

    Args:
        protocol: as the log has it.
        partitions: its partition columns.
    """
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    versions = (protocol["minReaderVersion"], protocol["minWriterVersion"])
    known = features <= _PLAIN if features else versions[0] <= 1 and versions[1] <= 2
    if not known:
        return sorted(features) or versions, "reader version 1 and writer version 2 at most"
    return (list(partitions), "no partition columns") if partitions else None

"""What a table may ask of those who write to it. No Spark: whoever reads a log can judge."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config.errors import PipelineError

_PLAIN = {"appendOnly", "invariants"}
"""What a writer of version 2 knows; a table of a later version names its features."""
SPENT = {"changeDataFeed", "checkConstraints", "checkpointProtection", "domainMetadata"}
"""What stays in the protocol of a table when it was switched off, or with it, and asks nothing of who appends then."""
_SPENT_VERSION = 4
"""A writer of this version knows constraints and the feed of changes; it names no features."""
_FEED, CONSTRAINT = "delta.enableChangeDataFeed", "delta.constraints."


_MANAGED = {"catalogManaged", "catalogOwned", "catalogOwned-preview"}
"""By these a catalog says which versions a table has: the name that Delta's protocol has, and those it had before."""


class CatalogManaged(PipelineError):
    """A catalog says which versions a table has: its log may lack the newest, and a commit past the catalog is none.

    Take the feature off in the catalog, or make the tables external (`docs/catalogs.md`).
    """

    def __init__(self, table: str, feature: str) -> None:
        super().__init__(
            f"{table}: a catalog manages the commits of the table (feature {feature}), allowed: a table whose log "
            "alone says what it holds; see docs/catalogs.md"
        )
        self.table, self.feature = table, feature


def check_unmanaged(table: str, protocol: Mapping[str, Any]) -> None:
    """Refuse a table whose commits a catalog manages.

    Args:
        table: its name.
        protocol: as the log has it.

    Raises:
        CatalogManaged: one does.
    """
    for feature in sorted(features(protocol) & _MANAGED):
        raise CatalogManaged(table, feature)


def unknown(
    protocol: Mapping[str, Any], partitions: Sequence[str], properties: Mapping[str, str]
) -> tuple[object, str] | None:
    """What a table asks for beyond plain files with plain statistics, and what is allowed; None when nothing.

    Args:
        protocol: as the log has it.
        partitions: its partition columns.
        properties: of the table.
    """
    versions = (protocol["minReaderVersion"], protocol["minWriterVersion"])
    named = features(protocol)
    known = versions[0] <= 1 and (named or versions[1] <= _SPENT_VERSION)
    if not known or named - _PLAIN - SPENT:
        return sorted(named) or versions, "reader version 1 and writer version 2 at most"
    asked = switched_on(properties)
    if asked:
        return asked, f"neither {_FEED} nor {CONSTRAINT}*"
    return (list(partitions), "no partition columns") if partitions else None


def features(protocol: Mapping[str, Any]) -> set[str]:
    """The features that a protocol names."""
    return {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}


def to_drop(protocol: Mapping[str, Any]) -> list[str]:
    """The features that have to go before the stages write."""
    return sorted(features(protocol) - _PLAIN - SPENT)


def switched_on(properties: Mapping[str, str]) -> list[str]:
    """The properties by which a writer has more to do than to append."""
    return sorted(
        name
        for name, value in properties.items()
        if name.startswith(CONSTRAINT) or (name == _FEED and value.lower() == "true")
    )

"""Who gets what, since when: the registry, incarnations of subscriptions, markers, and the mark of what is settled."""

__all__ = [
    "audience",
    "cursors",
    "destination",
    "incarnations",
    "markers",
    "policies",
    "presence",
    "records",
    "registry",
    "settled",
    "sinkplaces",
    "sought",
    "sourcestates",
]

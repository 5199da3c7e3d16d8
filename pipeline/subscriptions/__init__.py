"""Who gets what, since when: the registry, incarnations of subscriptions, markers, and the mark of what is settled.

Also what users withdrew by commands and what newer messages replaced, which dispatch and clients read.
"""

__all__ = [
    "calendars",
    "commandlog",
    "commands",
    "cursors",
    "daysoff",
    "destination",
    "fairness",
    "guards",
    "incarnations",
    "letters",
    "limits",
    "lines",
    "markers",
    "partitions",
    "policies",
    "policytable",
    "rates",
    "records",
    "registry",
    "replacedlog",
    "replacedrows",
    "scheduleplans",
    "schedules",
    "settled",
    "sinkplaces",
    "sourcenotes",
    "topicnames",
    "topicpolicies",
    "uniqueness",
    "windows",
]

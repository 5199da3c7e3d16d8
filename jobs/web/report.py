"""A report: how a warehouse stands, as one file to send to somebody."""

from __future__ import annotations

from datetime import datetime

from jobs.web.app import HERE, templates
from pipeline.client.commanding.outcomes import outcomes
from pipeline.client.insight.topics import topic_states, topics
from pipeline.insight.overview import OverviewFollower, look_back

_COMMANDS = 50


def report(root: str, now_ms: int, as_of: int | None = None) -> str:
    """The report as HTML, which asks for no other file.

    Args:
        root: the warehouse.
        now_ms: the time, ms UTC.
        as_of: an earlier time: tell how it stood then. None: now.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: deliveries of that time are deleted.
    """
    style = (HERE / "static" / "page.css").read_text(encoding="utf-8")
    seen = OverviewFollower(root).look(now_ms) if as_of is None else look_back(root, as_of)
    template = templates().get_template("report.html")
    found = [each for each in outcomes(root, _COMMANDS) if as_of is None or each.at is None or _ms(each.at) <= as_of]
    listed = topic_states(root, seen.pending.backlogs) if as_of is None else topics(root)
    return template.render(seen=seen, style=style, commands=found, topics=listed, as_of=as_of)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000)

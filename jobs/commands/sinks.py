"""`delayline sinks`: how far the sinks of a warehouse are, as text or JSON."""

from collections.abc import Iterator

from jobs.commands.jsonform import json_line, record
from pipeline.config.printed import printable
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table, path_of
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import SinkPlace, SinkPlaces, late_s
from schemas import DELIVERIES


def noted(root: str) -> list[tuple[SinkPlace, int, float | None]]:
    """Each sink as it was noted last, how many versions of `deliveries` it has yet to read, and how late it is, s.

    Raises:
        NoWarehouse: the folder has no deliveries.
    """
    newest, places = open_table(root, DELIVERIES).version(), SinkPlaces(Files(), root)
    found = [place for place in map(places.get, places.names()) if place is not None]
    found.sort(key=lambda place: (place.topic, place.subscription))
    table, now_ms = path_of(root, DELIVERIES), wall_ms()
    late = (late_s(Files(), table, place.version, now_ms) for place in found)
    return [(place, max(0, newest + 1 - place.version), each) for place, each in zip(found, late, strict=True)]


def report(root: str) -> Iterator[str]:
    """Lines for people: one a sink."""
    found = noted(root)
    if not found:
        yield "No sink has begun."
    for place, behind, late in found:
        name = printable(f"{place.topic}/{place.subscription}")
        how = "publishing" if place.error is None else f"stands still: {printable(place.error)}"
        yield f"{name}  published {place.published:,}  versions behind {behind:,}  behind by {_seconds(late)}  {how}"


def as_json(root: str) -> str:
    """The same for scripts."""
    return json_line([_record(*each) for each in noted(root)])


def _record(place: SinkPlace, behind: int, late: float | None) -> dict[str, object]:
    return record(
        topic=place.topic,
        subscription=place.subscription,
        sink=place.sink,
        sink_after=place.after,
        begun=place.begun,
        version=place.version,
        rows=place.rows,
        turn=place.turn,
        versions_behind=behind,
        behind_ms=None if late is None else round(late * 1_000),
        error=place.error,
    ) | {"published": place.published}


def _seconds(late: float | None) -> str:
    return "unknown" if late is None else f"{late:,.1f} s"

"""`delayline sinks`: how far the sinks of a warehouse are, as text or JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from jobs.commands.values import printable
from pipeline.delta.deltars import open_table
from pipeline.storage.files import Files
from pipeline.subscriptions.sinkplaces import SinkPlace, SinkPlaces
from schemas import DELIVERIES


def noted(root: str) -> list[tuple[SinkPlace, int]]:
    """Each sink as it was noted last, and how many versions of `deliveries` it has yet to read.

    Raises:
        NoWarehouse: the folder has no deliveries.
    """
    newest, places = open_table(root, DELIVERIES).version(), SinkPlaces(Files(), root)
    found = [place for place in map(places.get, places.names()) if place is not None]
    found.sort(key=lambda place: (place.topic, place.subscription))
    return [(place, max(0, newest + 1 - place.version)) for place in found]


def report(root: str) -> Iterator[str]:
    """Lines for people: one a sink."""
    found = noted(root)
    if not found:
        yield "No sink has begun."
    for place, behind in found:
        name = printable(f"{place.topic}/{place.subscription}")
        how = "publishing" if place.error is None else f"stands still: {printable(place.error)}"
        yield f"{name}  published {place.published:,}  versions behind {behind:,}  {how}"


def as_json(root: str) -> str:
    """The same for scripts."""
    return json.dumps([{**asdict(place), "versions_behind": behind} for place, behind in noted(root)])

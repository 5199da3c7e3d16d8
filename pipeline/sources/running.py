"""All sources of a profile, while a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from pipeline.config.errors import BadSetting
from pipeline.config.options import Options
from pipeline.config.sources import Source
from pipeline.config.sparkversion import kafka_connector
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.door import SourceConnector
from pipeline.sources.files import FORMATS, FileSource
from pipeline.sources.kafka import KafkaSource
from pipeline.sources.loop import SourceLoop
from pipeline.sources.pulsar import PulsarSource
from pipeline.sources.table import DeltaSource

DOORS: Mapping[str, Callable[[Source], SourceConnector]] = {
    "kafka": KafkaSource,
    "pulsar": PulsarSource,
    "pulsar+ssl": PulsarSource,
    "delta": DeltaSource,
    **dict.fromkeys(FORMATS, FileSource),
}
"""Doors by the scheme of the address."""
PACKAGES = {"kafka": kafka_connector}
"""What Spark needs for a door, as Maven names it."""


def door_of(source: Source) -> SourceConnector:
    """The door that an address names.

    Raises:
        BadSetting: there is no such one, or it is no address.
    """
    made = DOORS.get(_scheme(source))
    if made is None:
        raise BadSetting(source.field("address"), f"{_scheme(source)}:...", ", ".join(f"{each}:" for each in DOORS))
    if source.columns is not None and made is not FileSource:
        raise BadSetting(source.field("columns"), source.columns, "nothing: only files are told their columns")
    if source.admin is not None and made is not PulsarSource:
        raise BadSetting(source.field("admin"), source.admin, "nothing: only a cluster of Pulsar has one")
    return made(source)


def packages(sources: Sequence[Source]) -> list[str]:
    """What Spark needs for some sources."""
    return sorted({PACKAGES[scheme]() for scheme in map(_scheme, sources) if scheme in PACKAGES})


@contextmanager
def following(warehouse: Warehouse, sources: Sequence[Source], options: Options) -> Iterator[list[SourceLoop]]:
    """Follow sources while the block runs.

    Raises:
        PipelineError: one of them cannot be followed as the profile says; then none is.
    """
    loops: list[SourceLoop] = []
    # Each is stopped, also when another one cannot note its end.
    with ExitStack() as stack:
        for source in sources:
            loop = SourceLoop(warehouse, source, door_of(source), options)
            loop.begin()
            stack.callback(loop.stop)
            loops.append(loop)
        for loop in loops:
            loop.watch()
        yield loops


def _scheme(source: Source) -> str:
    return source.address.partition(":")[0]

"""What a profile says of a source: the outside system that it follows, and how its rows become rows of `inbox`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from pipeline.config.errors import BadSetting
from pipeline.config.settings import check

EARLIEST, LATEST = "earliest", "latest"
MOST_ROWS = 1_000_000
SOURCES = "source-"
"""What the names begin with under which sources note how far they have read."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r"\{.*\}", re.DOTALL)
STARTS = f"{EARLIEST} or {LATEST}; of a topic of Kafka also a place, as `delayline sources --json` prints it"
_FROM = "from"
"""The key of the address, which Python keeps for itself."""


@dataclass(frozen=True)
class Source:
    """A source, `[source.NAME]` of a profile. All columns are SQL expressions over the columns of the source.

    Attributes:
        name: its name. How far it has read is kept under it, so another name begins anew.
        address: what it follows: `kafka://HOST:PORT[,HOST:PORT]/TOPIC`, `pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC`,
            `delta:` and the folder of a table, or `json:`, `csv:` or `parquet:` and a folder of files.
        columns: the columns of files, as Spark SQL declares them; of nothing else.
        admin: the REST interface of a Pulsar cluster, `http://HOST:PORT`, which says how far the source is behind.
        start: where a source begins that has read nothing yet: `earliest` or `latest`; of a topic of Kafka also
            a place, as `delayline sources --json` prints it.
        max_rows: rows that one batch takes at most.
        topic: the topic, a STRING.
        message_key: the key, a STRING.
        properties: the properties, a MAP<STRING, STRING>.
        publish_time: when it was published, a TIMESTAMP.
        deliver_at: when it is due, a TIMESTAMP.
        deliver_after_ms: so many ms after `publish_time`, or after ingest takes it when that is NULL; a whole number.
        payload: the content, BINARY or STRING.
    """

    name: str
    address: str
    start: str = EARLIEST
    max_rows: int = MOST_ROWS
    columns: str | None = None
    admin: str | None = None
    topic: str | None = None
    message_key: str | None = None
    properties: str | None = None
    publish_time: str | None = None
    deliver_at: str | None = None
    deliver_after_ms: str | None = None
    payload: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that could not work."""
        if not _NAME.fullmatch(self.name):
            raise BadSetting("source", self.name, "a name of up to 64 letters, digits, - and _")
        if self.start not in (EARLIEST, LATEST) and not _PLACE.fullmatch(str(self.start)):
            raise BadSetting(self.field("start"), self.start, STARTS)
        check(self.field("max_rows"), self.max_rows, 1, 100_000_000)
        for name in ("address", "columns", "admin", *COLUMNS):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text.strip()):
                raise BadSetting(self.field(name), text, "a text")

    def field(self, name: str) -> str:
        """What the profile calls a setting of the source."""
        return f"source.{self.name}.{_FROM if name == 'address' else name}"

    @property
    def stage(self) -> str:
        """The name under which it notes what it has read, and is watched."""
        return f"{SOURCES}{self.name}"

    @property
    def expressions(self) -> dict[str, str]:
        """The columns that the profile states."""
        return {name: expression for name in COLUMNS if (expression := getattr(self, name)) is not None}


COLUMNS = ("topic", "message_key", "properties", "publish_time", "deliver_at", "deliver_after_ms", "payload")
"""The columns of `inbox` that a source gives."""
KEYS = tuple(_FROM if each.name == "address" else each.name for each in fields(Source) if each.name != "name")
"""What a profile may state of a source."""


def sources_of(tables: Mapping[str, object]) -> tuple[Source, ...]:
    """The sources of a profile, by name.

    Raises:
        BadSetting: a key that is not known, one that is missing, or a value outside its range.
    """
    return tuple(_source(name, values) for name, values in sorted(tables.items()))


def _source(name: str, options: object) -> Source:
    if not isinstance(options, dict):
        raise BadSetting(f"source.{name}", options, f"a table: [source.{name}]")
    for key in options:
        if key not in KEYS:
            raise BadSetting(f"source.{name}.{key}", options[key], ", ".join(KEYS))
    if _FROM not in options:
        raise BadSetting(f"source.{name}.{_FROM}", None, "an address, as in kafka://HOST:PORT/TOPIC")
    return Source(name=name, **{"address" if key == _FROM else key: value for key, value in options.items()})

"""The address of a sink: a topic of a Kafka cluster, and a few settings of its client.

The registry may be written by any Delta writer, so an address holds nothing secret, no path, and nothing on which
exactly-once rests. What else the client needs comes from the environment of the process that publishes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from pipeline.config.errors import BadValue

FORM = "kafka://HOST:PORT[,HOST:PORT]/TOPIC[?SETTING=VALUE], without a user or a password"
SETTINGS = (
    "batch.num.messages",
    "batch.size",
    "client.id",
    "compression.codec",
    "compression.level",
    "compression.type",
    "linger.ms",
    "message.max.bytes",
    "partitioner",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "sasl.mechanism",
    "security.protocol",
    "socket.timeout.ms",
    "transaction.timeout.ms",
)
"""Settings of the client that an address may name."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


@dataclass(frozen=True)
class Destination:
    """Where to.

    Attributes:
        servers: hosts with ports, as Kafka's clients take them.
        topic: the topic of the cluster.
        settings: of the client.
    """

    servers: str
    topic: str
    settings: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Destination:
        """Read an address.

        Raises:
            BadValue: another form, or a setting that an address may not name. What may be secret is not repeated.
        """
        try:
            parts = urlsplit(text)
            settings = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise BadValue("sink", "an address", FORM) from error
        if "@" in text or parts.scheme != "kafka" or parts.fragment:
            raise BadValue("sink", f"{parts.scheme}://...", FORM)
        topic = parts.path.removeprefix("/")
        servers = parts.netloc.split(",")
        if not all(map(_SERVER.fullmatch, servers)) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise BadValue("sink", f"{parts.scheme}://{parts.netloc}{parts.path}", FORM)
        unknown = sorted(set(settings) - set(SETTINGS))
        if unknown:
            raise BadValue("sink", f"setting {unknown[0]}", f"{', '.join(SETTINGS)}; others from the environment")
        return cls(parts.netloc, topic, settings)

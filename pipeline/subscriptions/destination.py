"""The address of a sink: a topic of a broker, and a few settings of its client.

The registry may be written by any Delta writer, so an address holds nothing secret, no path, and nothing on which
the promises of a sink rest. What else the client needs comes from the environment of the process that publishes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from pipeline.config.errors import BadValue
from pipeline.config.servers import check_clear


@dataclass(frozen=True)
class Form:
    """How the topics of a kind of broker are addressed.

    Attributes:
        text: for people.
        topic: what a topic looks like.
        settings: of the client, that an address may name.
    """

    text: str
    topic: re.Pattern[str]
    settings: tuple[str, ...]


_KAFKA = Form(
    "kafka://HOST:PORT[,HOST:PORT]/TOPIC[?SETTING=VALUE], without a user or a password",
    re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}"),
    (
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
    ),
)
_PULSAR = Form(
    "pulsar://HOST:PORT[,HOST:PORT]/TENANT/NAMESPACE/TOPIC[?SETTING=VALUE], or pulsar+ssl://, "
    "without a user or a password",
    re.compile(r"[-=:.\w]{1,200}/[-=:.\w]{1,200}/[-=:.\w]{1,249}", re.ASCII),
    ("compression_type", "max_pending_messages", "send_timeout_millis"),
)
FORMS: Mapping[str, Form] = {"kafka": _KAFKA, "pulsar": _PULSAR, "pulsar+ssl": _PULSAR}
"""By the scheme of the address."""
FORM = f"{_KAFKA.text}; or {_PULSAR.text}"
ENVIRONMENT = "DELAYLINE_KAFKA_"
"""Variables that begin so are settings of Kafka's client: `DELAYLINE_KAFKA_SASL_PASSWORD` is `sasl.password`."""
TRUSTED = "DELAYLINE_SINK_SERVERS"
"""The variable with the servers that may get secrets from a sink: HOST:PORT, with commas between."""
SECRET = ("sasl.user", "sasl.pass", "sasl.jaas", "sasl.oauth", "sasl.kerberos", "ssl.key", "ssl.certificate")
"""How the names begin of settings of Kafka's client that are secret, or go with a secret."""
_PROTOCOL, _ENCRYPTED = "security.protocol", ("SASL_SSL", "SSL")
_GUARDED = (_PROTOCOL, "sasl.mechanism")
"""Settings of an address on which it depends who can read a secret."""
_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


@dataclass(frozen=True)
class Destination:
    """Where to.

    Attributes:
        scheme: of the address: which broker, and how it is spoken to.
        servers: hosts with ports, as the clients of the brokers take them.
        topic: the topic, with what it is in.
        settings: of the client.
    """

    scheme: str
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
        form = FORMS.get(parts.scheme)
        if "@" in text or form is None or parts.fragment:
            raise BadValue("sink", f"{parts.scheme}://...", FORM)
        topic = parts.path.removeprefix("/")
        if not all(map(_SERVER.fullmatch, parts.netloc.split(","))) or not form.topic.fullmatch(topic):
            raise BadValue("sink", f"{parts.scheme}://{parts.netloc}{parts.path}", form.text)
        unknown = sorted(set(settings) - set(form.settings))
        if unknown:
            raise BadValue("sink", f"setting {unknown[0]}", f"{', '.join(form.settings)}; others from the environment")
        return cls(parts.scheme, parts.netloc, topic, settings)

    @property
    def identity(self) -> tuple[str, str]:
        """What stays the same when only servers or settings change: the kind of the broker, and the topic."""
        return self.scheme.removesuffix("+ssl"), self.topic


def same_topic(one: str | None, other: str | None) -> bool:
    """Whether two addresses of a registry name one topic, as far as they can be read; of other servers it may be."""
    try:
        return (
            one is not None
            and other is not None
            and Destination.parse(one).identity == Destination.parse(other).identity
        )
    except BadValue:
        return False


def check_trusted(to: Destination, variables: Mapping[str, str], secrets: Iterable[str]) -> None:
    """Refuse to give secrets of the environment to a server that its owner has not listed.

    The registry may be written by others than the one who runs the job. So an address of it alone brings no secret
    anywhere, and does not weaken the connection that the environment asks for.

    Args:
        to: the address of a sink.
        variables: the environment.
        secrets: names of settings of the environment that are secret, or go with a secret.

    Raises:
        BadValue: there is a secret, and a server is not in the variable `TRUSTED`; or `check_strength` refuses.
    """
    secrets = list(secrets)
    check_strength(to, variables, secrets)
    listed = {each.strip() for each in variables.get(TRUSTED, "").split(",")}
    unknown = [each for each in to.servers.split(",") if each not in listed]
    if unknown and secrets:
        allowed = f"servers that the variable {TRUSTED} lists, since the environment has secrets of a broker"
        raise BadValue("sink", f"{to.scheme}://{unknown[0]}", allowed)


def check_strength(to: Destination, variables: Mapping[str, str], secrets: Collection[str]) -> None:
    """Refuse an address that weakens the connection for which the environment has settings.

    Args:
        to: the address of a sink or of a source.
        variables: the environment.
        secrets: as for `check_trusted`.

    Raises:
        BadValue: the address names another protocol or mechanism than the environment, or one without TLS of which the
            environment, which has secrets, says nothing.
    """
    if to.scheme != "kafka":
        check_clear(to.scheme, to.servers, secrets)
        return
    named = from_environment(variables)
    for name in _GUARDED:
        stated = named.get(name, named.get(f"{name}s"))
        if stated is not None and to.settings.get(name, stated).upper() != stated.upper():
            raise BadValue("address", f"setting {name}", f"{stated}, as the environment says")
    protocol = to.settings.get(_PROTOCOL, _ENCRYPTED[0])
    if secrets and _PROTOCOL not in named and protocol.upper() not in _ENCRYPTED:
        allowed = f"{' or '.join(_ENCRYPTED)}, unless the variable {ENVIRONMENT}SECURITY_PROTOCOL says else"
        raise BadValue("address", f"setting {_PROTOCOL}", allowed)


def from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Settings of Kafka's client that the environment names."""
    named = {name.removeprefix(ENVIRONMENT): text for name, text in variables.items() if name.startswith(ENVIRONMENT)}
    return {name.lower().replace("_", "."): text for name, text in named.items()}

"""Settings of Kafka's C client, as the environment and addresses name them, as settings of its Java client.

Sinks publish with the one, sources read with the other; both take their secrets from the same variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.config.errors import BadSetting, BadValue
from pipeline.subscriptions.destination import SECRET, Destination, check_strength, from_environment

_SAME = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "client.id": "client.id",
    "ssl.key.password": "ssl.key.password",
}
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_USER, _PASSWORD = "sasl.username", "sasl.password"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def java_settings(to: Destination, field: str, variables: Mapping[str, str]) -> dict[str, str]:
    """What a reader of a topic is told.

    Args:
        to: the topic.
        field: what the profile calls its address.
        variables: the environment.

    Raises:
        BadSetting: the address has a setting of producers, or weakens what the environment says.
    """
    for name in to.settings:
        if name not in _SAME:
            raise BadSetting(
                field, f"setting {name}", "client.id, sasl.mechanism, security.protocol; others from the environment"
            )
    named = from_environment(variables)
    try:
        check_strength(to, variables, [name for name in named if name.startswith(SECRET)])
    except BadValue as error:
        raise BadSetting(field, error.value, error.allowed) from error
    settings = {**named, **to.settings}
    made = {_SAME[name]: value for name, value in settings.items() if name in _SAME}
    if _USER in settings and _PASSWORD in settings:
        made["sasl.jaas.config"] = _login(made.get("sasl.mechanism", "PLAIN"), settings[_USER], settings[_PASSWORD])
    if _CA in settings:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings[_CA]}
    if _CERTIFICATE in settings and _KEY in settings:
        made |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(settings[_CERTIFICATE]).read_text(encoding="utf-8"),
            "ssl.keystore.key": Path(settings[_KEY]).read_text(encoding="utf-8"),
        }
    return made | {"bootstrap.servers": to.servers}


def _login(mechanism: str, user: str, password: str) -> str:
    module = _SCRAM if mechanism.upper().startswith("SCRAM") else _PLAIN
    return f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""A client of Pulsar. Its secrets come from the environment only, and nothing here repeats one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.config.errors import BadValue, NoBrokerClient
from pipeline.config.servers import check_clear

ENVIRONMENT = "DELAYLINE_PULSAR_"
"""Variables that begin so are settings of the client."""
_WAIT_S = 10
"""For an answer of the broker."""
_TOKEN, _CERTIFICATE, _KEY = "TOKEN", "TLS_CERTIFICATE_FILE_PATH", "TLS_PRIVATE_KEY_FILE_PATH"
_TRUST, _NAMES, _OAUTH2 = "TLS_TRUST_CERTS_FILE_PATH", "TLS_VALIDATE_HOSTNAME", "OAUTH2"
SETTINGS = (_OAUTH2, _TOKEN, _CERTIFICATE, _KEY, _TRUST, _NAMES)
"""What may stand behind the beginning."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def package() -> Any:  # noqa: ANN401 - it ships no types
    """The client's package.

    Raises:
        NoBrokerClient: it is not installed.
    """
    try:
        import pulsar  # noqa: PLC0415 - an extra: who has no Pulsar does not need it
    except ImportError as error:
        raise NoBrokerClient("pulsar") from error
    return pulsar


def from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Settings that the environment names, without their beginning.

    Raises:
        BadValue: a name that is not known; its value is not repeated.
    """
    named = {name.removeprefix(ENVIRONMENT): text for name, text in variables.items() if name.startswith(ENVIRONMENT)}
    for name in sorted(set(named) - set(SETTINGS)):
        raise BadValue("environment", f"{ENVIRONMENT}{name}", f"{ENVIRONMENT} and one of {', '.join(SETTINGS)}")
    return named


def secrets_in(variables: Mapping[str, str]) -> list[str]:
    """The settings of the environment that are secret, or go with a secret.

    Raises:
        BadValue: a name that is not known; its value is not repeated.
    """
    return [name for name in from_environment(variables) if name in (_TOKEN, _OAUTH2, _CERTIFICATE, _KEY)]


def connected(service: str) -> Any:  # noqa: ANN401 - of the client
    """A client of a cluster; it connects when it is used.

    Args:
        service: `pulsar://HOST:PORT` or `pulsar+ssl://HOST:PORT`.

    Raises:
        NoBrokerClient: the client is not installed.
        BadValue: the environment names a setting that is not known; or it has a secret, and the address names a server
            elsewhere without TLS.
    """
    pulsar, options = package(), from_environment(os.environ)
    scheme, _, servers = service.partition("://")
    check_clear(scheme, servers.partition("/")[0], secrets_in(os.environ))
    files = {
        "tls_trust_certs_file_path": options.get(_TRUST),
        "tls_certificate_file_path": options.get(_CERTIFICATE),
        "tls_private_key_file_path": options.get(_KEY),
    }
    return pulsar.Client(
        service,
        authentication=_authentication(pulsar, options),
        operation_timeout_seconds=_WAIT_S,
        connection_timeout_ms=1_000 * _WAIT_S,
        tls_validate_hostname=options.get(_NAMES, "true").lower() != "false",
        # What goes wrong is raised. The client's own log repeats each failed attempt, and it has no switch.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        **{name: path for name, path in files.items() if path is not None},
    )


def _authentication(pulsar: Any, options: Mapping[str, str]) -> Any:  # noqa: ANN401 - of the client
    if _TOKEN in options:
        return pulsar.AuthenticationToken(options[_TOKEN])
    if _OAUTH2 in options:
        return pulsar.AuthenticationOauth2(options[_OAUTH2])
    if _CERTIFICATE in options and _KEY in options:
        return pulsar.AuthenticationTLS(options[_CERTIFICATE], options[_KEY])
    return None


def time_of(ms: int) -> datetime:
    """A time of the client, ms UTC."""
    return _EPOCH + timedelta(milliseconds=ms)

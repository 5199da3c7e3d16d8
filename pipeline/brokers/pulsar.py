"""A client of Pulsar, and the REST interface of a cluster, as far as that tells what the client does not.

Their secrets come from the environment only, and nothing here repeats one.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from threading import local
from typing import Any
from urllib.parse import quote, urlsplit

from pipeline.config.errors import BadValue, BrokerRefused, NoBrokerClient
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


def time_of(ms: int) -> datetime | None:
    """A time of the client, ms UTC; None: no calendar has it, since producers may write any number."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


Position = tuple[int, int]
"""Ledger and entry."""
_ANSWER_S = 30
_FORM = "http://HOST:PORT or https://HOST:PORT, without a user or a password"
_DUE = "X-Pulsar-deliver-at-time"
_YEAR, _CYCLE_MS = re.compile(r"[+-]?\d{4,10}(?=-)"), 146_097 * 86_400_000
_RANGE = re.compile(r"([(\[])(-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)([)\]])")


@dataclass(frozen=True)
class Cursor:
    """What a subscription has acknowledged of a topic, or of a partition.

    Attributes:
        before: everything up to this position is acknowledged.
        ranges: what else is, each from the first to the last entry of one ledger, ascending.
        last: the newest position of the topic.
        kind: the type of the subscription (`Shared`, ...); that of one that no consumer has used is `Shared`, too.
        backlog: how many messages it has not acknowledged, as the broker counts them.
    """

    before: Position
    ranges: Sequence[tuple[Position, Position]]
    last: Position
    kind: str
    backlog: int

    def has(self, position: Position) -> bool:
        """Whether a position is acknowledged."""
        index = bisect_right(self.ranges, position, key=lambda each: each[0])
        return position <= self.before or (index > 0 and position <= self.ranges[index - 1][1])


class Admin:
    """Connections to a broker's REST interface, one for each thread."""

    def __init__(self, url: str, wait_s: float = _ANSWER_S) -> None:
        """Take an address; nothing is asked yet. An answer is waited for so long.

        Raises:
            BadValue: it is none.
        """
        self._secure, self._server = _server(url)
        options = from_environment(os.environ)
        self._headers = {"Authorization": f"Bearer {options['TOKEN']}"} if "TOKEN" in options else {}
        self._wait_s = wait_s
        self._context = _context(options) if self._secure else None
        self._local, self._connections = local(), list[HTTPConnection]()

    def close(self) -> None:
        """End all connections, when no thread asks any more; who asks again gets new ones."""
        for each in self._connections:
            each.close()
        self._connections, self._local = [], local()

    def cursor(self, topic: str, subscription: str) -> Cursor:
        """How far a subscription is in a topic that has no partitions, or in a partition.

        Raises:
            BrokerRefused: there is no such subscription, or the broker refuses.
        """
        with self._understood(topic):
            stats = json.loads(self._get(f"{topic}/stats")[1])
            found = json.loads(self._get(f"{topic}/internalStats")[1])
            if subscription not in found["cursors"]:
                raise BrokerRefused(f"{topic} has no subscription {subscription!r}")
            cursor, counts = found["cursors"][subscription], stats["subscriptions"].get(subscription, {})
            return Cursor(
                position(cursor["markDeletePosition"]),
                ranges(cursor["individuallyDeletedMessages"]),
                position(found["lastConfirmedEntry"]),
                _kind(counts.get("type")),
                int(counts.get("msgBacklog", 0)),
            )

    def entries_after(self, topic: str, position: Position) -> int:
        """How many entries a topic without partitions, or a partition, has behind a position.

        Raises:
            BrokerRefused: there is no such topic, or the broker refuses.
        """
        with self._understood(topic):
            found = json.loads(self._get(f"{topic}/internalStats")[1])
            *closed, current = found["ledgers"] or [{"ledgerId": -1}]
            # Of the ledger that is written the list does not say yet how many entries it has.
            sizes = {int(each["ledgerId"]): int(each["entries"]) for each in closed}
            sizes[int(current["ledgerId"])] = int(found["currentLedgerEntries"])
        ledger, entry = position
        return sum(
            max(0, size - (entry + 1 if number == ledger else 0)) for number, size in sizes.items() if number >= ledger
        )

    def due_ms(self, topic: str, at: Position) -> int | None:
        """The time before which a message is not delivered, ms UTC, in any year; None: it was sent without one.

        Raises:
            BrokerRefused: the message is gone, or the broker refuses.
        """
        with self._understood(topic):
            headers, _ = self._get(f"{topic}/ledger/{at[0]}/entry/{at[1]}")
            text = headers.get(_DUE)
            if text is None:
                return None
            return ms_of(text)

    @contextmanager
    def _understood(self, topic: str) -> Iterator[None]:
        """Anybody may answer 200: a proxy, a page that asks for a password, a broker of another version."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"{self._server} does not answer as Pulsar does about {topic} ({type(error).__name__})"
            raise BrokerRefused(text) from error

    def _get(self, path: str) -> tuple[HTTPMessage, bytes]:
        """The headers of an answer, whose names have no case, and its body."""
        path = f"/admin/v2/persistent/{quote(path)}"
        for fresh in (False, True):
            connection = self._connection(fresh=fresh)
            try:
                connection.request("GET", path, headers=self._headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, HTTPException) as error:
                connection.close()
                # A connection that was kept may have ended meanwhile; a new one has to do.
                if fresh:
                    raise BrokerRefused(f"no answer from {self._server}: {error}") from error
                continue
            except ValueError:
                # Its text repeats the header that has the token.
                raise BrokerRefused(f"HTTP has no room for the host {self._server}, or for the token") from None
            if answer.status != 200:
                raise BrokerRefused(f"{self._server} answers {answer.status} to GET {path}")
            return answer.headers, body
        raise AssertionError

    def _connection(self, *, fresh: bool) -> HTTPConnection:
        found: HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None or fresh:
            found = (
                HTTPConnection(self._server, timeout=self._wait_s)
                if self._context is None
                else HTTPSConnection(self._server, timeout=self._wait_s, context=self._context)
            )
            self._local.connection = found
            self._connections.append(found)
        return found


def _server(url: str) -> tuple[bool, str]:
    """Whether an address is one of HTTPS, and its host and port."""
    scheme, stated, _ = url.partition("://")
    try:
        parts = urlsplit(url)
        # To ask for the port is to check it.
        wrong = parts.port == 0 or not parts.hostname or "@" in parts.netloc or parts.path.strip("/")
    except ValueError:
        wrong = True
    if wrong or parts.scheme not in ("http", "https"):
        raise BadValue("admin", f"{scheme}://..." if stated else "an address", _FORM)
    return parts.scheme == "https", parts.netloc


def ms_of(text: str) -> int:
    """A time as Java writes it, ms UTC, in any year; the calendar repeats after 400 of them.

    Raises:
        ValueError: it is none.
    """
    cycles = 0
    if (written := _YEAR.match(text)) is not None:
        cycles, year = divmod(int(written[0]) - 2_000, 400)
        text = f"{2_000 + year}{text[written.end() :]}"
    since = datetime.fromisoformat(text) - _EPOCH
    return since // timedelta(milliseconds=1) + cycles * _CYCLE_MS


def position(text: str) -> Position:
    """`LEDGER:ENTRY` as two numbers."""
    ledger, entry = text.split(":")
    return int(ledger), int(entry)


def ranges(text: str) -> list[tuple[Position, Position]]:
    """The ranges of a cursor, with both ends, from what a broker writes: `[(3:5..3:7],(4:1..4:2]]`."""
    found = []
    for opened, ledger, entry, last_ledger, last_entry, closed in _RANGE.findall(text):
        first = int(ledger), int(entry) + (opened == "(")
        found.append((first, (int(last_ledger), int(last_entry) - (closed == ")"))))
    return sorted(found)


def _kind(text: str | None) -> str:
    return "Shared" if text in (None, "", "None") else text


def _context(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("TLS_TRUST_CERTS_FILE_PATH"))
    context.check_hostname = options.get("TLS_VALIDATE_HOSTNAME", "true").lower() != "false"
    certificate, key = options.get("TLS_CERTIFICATE_FILE_PATH"), options.get("TLS_PRIVATE_KEY_FILE_PATH")
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context

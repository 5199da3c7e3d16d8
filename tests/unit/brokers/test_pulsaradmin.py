"""What the REST interface of Pulsar says of cursors, and which addresses of it are taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from traceback import format_exception

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.brokers.pulsar import Admin, Cursor, Position, ms_of, position, ranges
from pipeline.config.errors import BadValue, BrokerRefused
from pipeline.config.threads import beside


def test_ranges_have_both_ends() -> None:
    """Brokers leave out the first one."""
    assert ranges("[]") == []
    assert ranges("[(3:5..3:7],(12:-1..12:0]]") == [((3, 6), (3, 7)), ((12, 0), (12, 0))]
    assert ranges("[[3:5..3:7)]") == [((3, 5), (3, 6))]
    assert position("3:-1") == (3, -1)


positions = st.tuples(st.integers(0, 3), st.integers(0, 20))


@given(st.sets(positions), positions)
def test_a_cursor_has_what_is_acknowledged(acknowledged: set[Position], before: Position) -> None:
    """Up to its mark, and within its ranges: compared with the set of positions."""
    single = sorted(each for each in acknowledged if each > before)
    text = ",".join(f"({ledger}:{entry - 1}..{ledger}:{entry}]" for ledger, entry in single)
    cursor = Cursor(before, ranges(f"[{text}]"), (9, 9), "Shared", 0)
    for ledger in range(4):
        for entry in range(21):
            at = (ledger, entry)
            assert cursor.has(at) == (at <= before or at in acknowledged)


def test_what_lies_behind_a_position_is_counted_by_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list says 0 of the ledger that is written; another figure has its entries."""
    ledgers = [{"ledgerId": 3, "entries": 10}, {"ledgerId": 5, "entries": 7}, {"ledgerId": 8, "entries": 0}]
    answer = json.dumps({"ledgers": ledgers, "currentLedgerEntries": 4}).encode()
    monkeypatch.setattr(Admin, "_get", lambda *_: ({}, answer))
    admin = Admin("http://127.0.0.1:1")
    wanted = {(-1, -1): 21, (3, 8): 12, (3, 9): 11, (4, 0): 11, (5, 6): 4, (8, 0): 3, (8, 3): 0, (9, 0): 0}
    assert {place: admin.entries_after("public/default/t", place) for place in wanted} == wanted
    empty = json.dumps({"ledgers": [], "currentLedgerEntries": 0}).encode()
    monkeypatch.setattr(Admin, "_get", lambda *_: ({}, empty))
    assert admin.entries_after("public/default/t", (-1, -1)) == 0


@given(st.integers(-(1 << 50), 1 << 53))
def test_a_time_in_any_year_is_read_as_java_writes_it(ms: int) -> None:
    """Years before 0 and behind 9999 have a sign: a producer may ask for any of them."""
    cycles, rest = divmod(ms, 146_097 * 86_400_000)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=rest)
    year = moment.year + 400 * cycles
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    assert ms_of(f"{shown}{moment:-%m-%dT%H:%M:%S.%f}Z") == ms


def test_the_last_instant_of_java_is_read() -> None:
    """As it writes it."""
    assert ms_of("+292278994-08-17T07:12:55.807Z") == (1 << 63) - 1
    assert ms_of("+10000-01-01T00:00:00Z") == 253_402_300_800_000


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "pulsar://a:1",
        "http://",
        "http://:80",
        "http://me:hunter2@a:1",
        "http://me:hunter2",
        "http://a:1/x",
        "http://a:80x",
        "http://a:65536",
        "http://[::1:80",
    ],
)
def test_another_form_of_address_is_refused(url: str) -> None:
    """A password is not repeated."""
    with pytest.raises(BadValue, match="admin") as refused:
        Admin(url)
    assert "hunter2" not in str(refused.value)


def test_a_broker_that_is_away_is_named() -> None:
    """And nothing waits for ever."""
    with pytest.raises(BrokerRefused, match=r"no answer from 127\.0\.0\.1:1"):
        Admin("http://127.0.0.1:1").cursor("public/default/t", "s")


class _Page(BaseHTTPRequestHandler):
    """Answers each question with a text that the test has put into the server."""

    def do_GET(self) -> None:
        """As a proxy does, whatever was asked."""
        text: str = self.server.text  # type: ignore[attr-defined]
        self.send_response(200)
        for name, value in self.server.headers.items():  # type: ignore[attr-defined]
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def page() -> Iterator[HTTPServer]:
    """Somebody else at the address."""
    with HTTPServer(("127.0.0.1", 0), _Page) as server, beside(lambda _: server.serve_forever(0.01)):
        server.text, server.headers = "", {}  # type: ignore[attr-defined]
        yield server
        server.shutdown()


@pytest.mark.parametrize("text", ["<html>Who are you?</html>", "{}", "[]", '{"ledgers": 1, "cursors": {"s": {}}}'])
def test_an_address_where_somebody_else_answers_is_named(page: HTTPServer, text: str) -> None:
    """A source goes on without a count then, and an import ends with one line."""
    page.text, page.headers = text, {"X-Pulsar-deliver-at-time": "tomorrow"}  # type: ignore[attr-defined]
    admin, topic = Admin(f"http://127.0.0.1:{page.server_port}"), "public/default/t"
    asked = (
        lambda: admin.cursor(topic, "s"),
        lambda: admin.entries_after(topic, (1, 1)),
        lambda: admin.due_ms(topic, (1, 1)),
    )
    for ask in asked:
        with pytest.raises(BrokerRefused, match=f"127.0.0.1:{page.server_port} does not answer as Pulsar does"):
            ask()
    admin.close()


@pytest.mark.parametrize("name", ["X-Pulsar-deliver-at-time", "x-pulsar-deliver-at-time"])
def test_a_due_time_is_found_however_its_header_is_spelled(page: HTTPServer, name: str) -> None:
    """Names of headers have no case, and proxies make them small: each message seemed to have no due time."""
    page.headers = {name: "2027-01-15T08:00:00.123Z"}  # type: ignore[attr-defined]
    admin = Admin(f"http://127.0.0.1:{page.server_port}")
    assert admin.due_ms("public/default/t", (1, 1)) == 1_800_000_000_123
    page.headers = {}  # type: ignore[attr-defined]
    assert admin.due_ms("public/default/t", (1, 1)) is None
    admin.close()


def test_a_token_or_a_host_that_no_request_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is not repeated."""
    with pytest.raises(BrokerRefused, match="HTTP has no room"):
        Admin("http://a..b:1").cursor("public/default/t", "s")
    monkeypatch.setenv("DELAYLINE_PULSAR_TOKEN", "hunter2\nhunter2")
    with pytest.raises(BrokerRefused, match="HTTP has no room") as refused:
        Admin("http://127.0.0.1:1").cursor("public/default/t", "s")
    assert "hunter2" not in "".join(format_exception(refused.value))

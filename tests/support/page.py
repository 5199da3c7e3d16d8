"""The page of a warehouse, served in this process, and requests to it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import html5lib
import uvicorn

from jobs.web.app import Options, application

_PATIENCE_S = 60


@dataclass(frozen=True)
class Answered:
    """An answer: its status, headers in small letters, and text."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def words(self) -> str:
        """What a reader sees, without tags."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())

    @property
    def once(self) -> str:
        """The number with which a form is taken once."""
        found = re.search('name="once" value="([^"]*)"', self.text)
        assert found is not None
        return found[1]

    def form(self, action: str) -> tuple[str, str]:
        """Where the first form that leads there is sent, and its secret."""
        found = re.search(
            rf'action="([^"]*{action}\?[^"]*)"><input type="hidden" name="secret" value="([^"]*)"', self.text
        )
        assert found is not None, f"no form for {action}"
        return unescape(found[1]), found[2]


class Visitor:
    """Asks a page as a browser does, and looks whether its HTML is right."""

    def __init__(self, address: str) -> None:
        """Know the address."""
        self.address = address
        self._host, self._port = urlsplit(address).hostname or "", urlsplit(address).port or 0

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **query: object) -> Answered:
        """Look at a page."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None, headers or {})

    def send(self, form: tuple[str, str], **fields: object) -> Answered:
        """Send a form of a page, filled in."""
        return self.post(form[0], secret=form[1], **fields)

    def post(self, path: str, headers: Mapping[str, str] | None = None, /, **form: object) -> Answered:
        """Send fields."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(form), {**kind, **(headers or {})})

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answered:
        connection = HTTPConnection(self._host, self._port, timeout=_PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if found.get("content-type", "").startswith("text/html") and text.startswith("<!doctype"):
            html5lib.HTMLParser(strict=True).parse(text)
        return Answered(answer.status, found, text)


@contextmanager
def served(root: str, **options: Any) -> Iterator[Visitor]:  # noqa: ANN401 - of `Options`
    """Serve the page of a warehouse while the block runs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    config = uvicorn.Config(application(root, Options(**options)), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Visitor(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(_PATIENCE_S)
        listener.close()

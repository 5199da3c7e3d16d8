"""A store that speaks S3, on this machine: moto's server as a process of its own.

`python -m tests.support.s3 PORT` serves until it is ended. moto asks whether an object is there and then puts it, so
puts are let in one by one, as if it were one step, which it is in Amazon's store.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEY = "delayline"
FORGETFUL, CROWDED, UNSEEN, GOING = "forgetful", "crowded", "unseen", "going"
"""Buckets: one replaces objects whatever it is asked, one answers every first put of an object with a conflict, one
tells nobody who looks that the first version of a table after its making is there: as if it came after the look; and of
one an object goes whenever somebody has looked whether it is there."""
_PATIENCE_S = 60
_DENIED = b"<Error><Code>InvalidAccessKeyId</Code><Message>The key does not exist.</Message></Error>"
_BUSY = b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>"
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def variables(port: int) -> dict[str, str]:
    """What a user says of the store."""
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", **keys}


@contextmanager
def serving(*buckets: str) -> Iterator[dict[str, str]]:
    """A server with some buckets; gives the variables that name it, and ends it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, str(port)], cwd=ROOT, stdin=subprocess.PIPE)  # noqa: S603
    try:
        _wait(process, port)
        for bucket in buckets:
            _ask(port, "PUT", bucket)
        yield variables(port)
    finally:
        process.kill()
        process.communicate()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(_PATIENCE_S * 10):
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError


def _ask(port: int, method: str, path: str) -> None:
    headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", method=method, headers=headers)
    urllib.request.urlopen(request, timeout=_PATIENCE_S).close()  # noqa: S310 - this machine


class Store:
    """moto behind a door: keys are looked at, puts come one by one, two buckets have their ways."""

    def __init__(self, moto: App) -> None:
        """Nobody has put anything yet."""
        self._moto, self._putting, self._seen = moto, Lock(), set[str]()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        path, method = environment["PATH_INFO"], environment["REQUEST_METHOD"]
        if f"Credential={KEY}/" not in environment.get("HTTP_AUTHORIZATION", ""):
            return self._refuse(start, "403 Forbidden", _DENIED)
        if path.startswith(f"/{FORGETFUL}/"):
            environment.pop("HTTP_IF_NONE_MATCH", None)
        if path.startswith(f"/{UNSEEN}/") and path.endswith("1.json") and method == "HEAD":
            return self._refuse(start, "404 Not Found", b"")
        if path.startswith(f"/{GOING}/") and method == "GET":
            self._moto({**environment, "REQUEST_METHOD": "DELETE"}, lambda *_: None)
        if method != "PUT":
            return self._moto(environment, start)
        with self._putting:
            if path.startswith(f"/{CROWDED}/") and path not in self._seen:
                self._seen.add(path)
                environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
                return self._refuse(start, "409 Conflict", _BUSY)
            return list(self._moto(environment, start))

    @staticmethod
    def _refuse(start: Callable[..., Any], status: str, text: bytes) -> list[bytes]:
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
        return [text]


def _serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 - the server's process only
    from werkzeug.serving import run_simple  # noqa: PLC0415 - the same

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Whoever started it holds the other end, and lets go of it however it ends.
    Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    run_simple("127.0.0.1", port, Store(DomainDispatcherApplication(create_backend_app)), threaded=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))

"""A store that speaks S3, on this machine: moto's server as a process of its own.

`python -m benchmarks.support.s3 PORT` serves until it is ended. moto asks whether an object is there and then puts it,
so puts are let in one by one, as if it were one step, which it is in Amazon's store. Tests put a server with more ways
in its place (`tests.support.s3`).
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
from threading import Lock, Thread
from typing import Any
from unittest.mock import patch

from benchmarks.support import ROOT
from pipeline.config import s3

KEY = "delayline"
_PATIENCE_S = 60
_DENIED = b"<Error><Code>InvalidAccessKeyId</Code><Message>The key does not exist.</Message></Error>"
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def variables(port: int) -> dict[str, str]:
    """What a user says of the store."""
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", **keys}


@contextmanager
def serving(*buckets: str, server: str = __name__) -> Iterator[dict[str, str]]:
    """A server, by its module, with some buckets; gives the variables that name it, and ends it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", server, str(port)], cwd=ROOT, stdin=subprocess.PIPE)  # noqa: S603
    try:
        _wait(process, port)
        for bucket in buckets:
            _ask(port, "PUT", bucket)
        yield variables(port)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def named(*buckets: str, server: str = __name__) -> Iterator[None]:
    """The same, and this process and those that it starts find it, as a user names it."""
    with serving(*buckets, server=server) as variables, patch.dict(os.environ, variables):
        s3.files.cache_clear()
        yield


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(_PATIENCE_S * 10):
        if process.poll() is not None:
            message = f"the store ended with {process.returncode}"
            raise ChildProcessError(message)
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
    """moto behind a door: keys are looked at, puts come one by one."""

    def __init__(self, moto: App) -> None:
        """Nobody has put anything yet."""
        self.moto, self._putting = moto, Lock()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if f"Credential={KEY}/" not in environment.get("HTTP_AUTHORIZATION", ""):
            return refuse(start, "403 Forbidden", _DENIED)
        if environment["REQUEST_METHOD"] != "PUT":
            return self.answer(environment, start)
        with self._putting:
            return list(self.answer(environment, start))

    def answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """What moto answers."""
        return self.moto(environment, start)


def refuse(start: Callable[..., Any], status: str, text: bytes) -> list[bytes]:
    """An error in the words of S3."""
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
    return [text]


def serve(port: int, store: type[Store] = Store) -> None:
    """Answer until whoever started this process has ended."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 - the server's process only
    from werkzeug.serving import run_simple  # noqa: PLC0415 - the same

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Whoever started it holds the other end, and lets go of it however it ends.
    Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    run_simple("127.0.0.1", port, store(DomainDispatcherApplication(create_backend_app)), threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))

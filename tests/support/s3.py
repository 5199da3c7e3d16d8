"""A store that speaks S3, as `benchmarks.support.s3` serves it, with buckets that have ways of their own."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from benchmarks.support import s3
from tests.support.pages import block_of

FORGETFUL, CROWDED, UNSEEN, GOING = "forgetful", "crowded", "unseen", "going"
"""Buckets: one replaces objects whatever it is asked, one answers every first put of an object with a conflict, one
tells nobody who looks that the first version of a table after its making is there, until somebody else puts it: as if
it came after the look; and of one an object goes whenever somebody has looked whether it is there."""
PRODUCER = "producer"
"""A key with the rights that `docs/security.md` gives to producers, in each folder of a bucket."""
_METHODS = {"PUT": "put", "POST": "put", "GET": "get", "HEAD": "get"}
_FORBIDDEN = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_BUSY = b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>"
serving, named = partial(s3.serving, server=__name__), partial(s3.named, server=__name__)


class Store(s3.Store):
    """The same with the ways of those buckets."""

    def __init__(self, moto: s3.App) -> None:
        """Nobody has put anything yet."""
        super().__init__(moto)
        self._seen, self._puts = set[str](), Counter[str]()
        rights = (line.split() for line in block_of("security.md", "put   inbox/"))
        self._rights = {right: patterns for right, *patterns in rights}

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Whoever has the other key may do what that one may."""
        allowed = environment.get("HTTP_AUTHORIZATION", "").replace(f"={PRODUCER}/", f"={s3.KEY}/")
        if allowed != environment.get("HTTP_AUTHORIZATION", "") and not self._may(environment):
            return s3.refuse(start, "403 Forbidden", _FORBIDDEN)
        return super().__call__(environment | {"HTTP_AUTHORIZATION": allowed}, start)

    def _may(self, environment: dict[str, Any]) -> bool:
        _, _bucket, *key = environment["PATH_INFO"].split("/", 2)
        right, listed = _METHODS.get(environment["REQUEST_METHOD"], ""), parse_qs(environment.get("QUERY_STRING", ""))
        if not any(key):
            right, key = "list", listed.get("prefix", [""])
        _folder, _, name = key[0].partition("/")
        return any(fnmatchcase(name, each) for each in self._rights.get(right, ()))

    def answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """What moto answers, or the bucket."""
        path, method = environment["PATH_INFO"], environment["REQUEST_METHOD"]
        if path.startswith(f"/{FORGETFUL}/"):
            environment.pop("HTTP_IF_NONE_MATCH", None)
        if path.startswith(f"/{UNSEEN}/") and path.endswith("1.json"):
            self._puts[path] += method == "PUT"
            if method == "HEAD" and self._puts[path] == 1:
                return s3.refuse(start, "404 Not Found", b"")
        if path.startswith(f"/{GOING}/") and method == "GET":
            self.moto({**environment, "REQUEST_METHOD": "DELETE"}, lambda *_: None)
        if path.startswith(f"/{CROWDED}/") and method == "PUT" and path not in self._seen:
            self._seen.add(path)
            environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            return s3.refuse(start, "409 Conflict", _BUSY)
        return self.moto(environment, start)


if __name__ == "__main__":
    s3.serve(int(sys.argv[1]), Store)

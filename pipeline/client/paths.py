"""Paths of warehouses: which of them lie on this machine."""

from pathlib import Path

_HERE = Path()


def local_path(path: str, here: Path | None = _HERE) -> Path | None:
    """A path as this machine's own programs name it; None when it lies on another file system.

    Args:
        path: with a scheme (`file:/a`, `file:///a`, `s3://a/b`) or without one.
        here: where a path without a scheme begins; None when that is another file system.
    """
    scheme, colon, rest = path.partition(":")
    if colon and "/" not in scheme:
        return Path("/", rest.lstrip("/")) if scheme == "file" and rest.startswith("/") else None
    return None if here is None else here / path

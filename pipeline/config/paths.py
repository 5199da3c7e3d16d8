"""Paths of warehouses: how they are spelled, and which of them lie on this machine."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pipeline.config.errors import BadValue, check_kind, check_text

_HERE = Path()
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\\[\]^|]|%[0-9A-Fa-f]{2}|/_delta_log(?:/|$)")
_USABLE = (
    r"a path in UTF-8 without control characters, \ [ ] ^ | and without %XX (two hexadecimal digits) or _delta_log"
)
_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
"""Schemes of object stores."""
_ADDRESS = re.compile(r"[a-z0-9]+://[^\s%?#\\]+")
"""An address that means the same to all who read it: nothing in it is encoded, or cut off."""


def one_spelling(path: str) -> str:
    """The path of a warehouse or of a table in the one spelling that Hadoop, Spark and delta-rs all know.

    Hadoop's connector for S3 is known as `s3a`, users say `s3`: both name the same bucket. A slash at the end says
    nothing.
    """
    scheme, colon, rest = path.partition("://")
    spelled = f"s3a://{rest}" if colon and scheme in ("s3", "s3a") else path
    return spelled.rstrip("/") or spelled


def place_of(path: str) -> str:
    """One text for a folder, whichever way a path leads there: links, points and schemes say nothing more."""
    check_text("warehouse", path)
    near = local_path(path)
    return one_spelling(path) if near is None else os.path.realpath(near)


def is_s3(path: str) -> bool:
    """Whether a path lies in a store that speaks S3."""
    return one_spelling(path).startswith("s3a://")


def is_in_store(path: str) -> bool:
    """Whether a path lies in an object store, of a kind that is reached without Hadoop."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme in _STORES


def local_path(path: str, here: Path | None = _HERE) -> Path | None:
    """A path as this machine's own programs name it; None when it lies on another file system.

    Args:
        path: with a scheme (`file:/a`, `file:///a`, `s3://a/b`) or without one.
        here: where a path without a scheme begins; None when that is another file system.

    Raises:
        BadValue: it is no text. All that a program gives as its warehouse comes this way.
    """
    _check_path(path)
    scheme, colon, rest = path.partition(":")
    if colon and "/" not in scheme:
        return Path("/", rest.lstrip("/")) if scheme == "file" and rest.startswith("/") else None
    return None if here is None else here / path


def is_whole(path: object) -> bool:
    """Whether something is a path from the root on, of this machine or of another file system."""
    return isinstance(path, str) and (path.startswith(("/", "file:/")) or "://" in path)


def within(path: str, folders: Iterable[str]) -> str | None:
    """A path that lies in one of some folders, as it is to be opened; None: it lies in none of them.

    Links of this machine are followed first, in the path and in the folders. What could be read in two ways, as `..`
    in an address, lies nowhere.
    """
    found = _followed(path)
    if found is None or not any(_is_in(found, _followed(folder)) for folder in folders):
        return None
    return found


def _is_in(path: str, folder: str | None) -> bool:
    return folder is not None and f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _followed(path: str) -> str | None:
    """A path without links, or an address that is clear; None: it is neither."""
    here = local_path(path, None) if ":" in path else Path(path)
    if here is not None:
        return None if "\0" in path else os.path.realpath(here)
    address = one_spelling(path)
    if not _ADDRESS.fullmatch(address) or {"", ".", ".."} & set(address.partition("://")[2].split("/")):
        return None
    return address


def usable(root: str) -> str:
    """The path of a warehouse, when all libraries can name what lies in it.

    delta-rs makes URLs of paths, and of some names it makes others: `%20` becomes a space, and a backslash a slash. An
    empty path would be the root of the file system: a variable of a script that is not set.

    Raises:
        BadValue: the path has such a name, also of a folder above it; or it is no text.
    """
    _check_path(root)
    if not root.strip():
        raise BadValue("warehouse", root, "the path of a folder")
    local = local_path(root)
    # What it is made of in the end counts: a path may begin in the folder where somebody stands.
    if local is not None and _UNUSABLE.search(whole := os.path.abspath(local)):  # noqa: PTH100 - `Path` keeps `..`
        raise BadValue("warehouse", whole, _USABLE)
    return root


def _check_path(path: object) -> None:
    check_kind("warehouse", path, str, "the path of a folder, as a text")


def python_environment() -> dict[str, str]:
    """What a Python that we start finds in its environment, and those that it starts, beside what is there now.

    It imports this project, and nothing from the folder in which somebody stands: `python -m` would take a module of
    Python's own from there, and a file named `traceback.py` would run as the job.
    """
    return {"PYTHONPATH": python_path(), "PYTHONSAFEPATH": "1"}


def python_path() -> str:
    """`PYTHONPATH` for a Python that we start: where this project is imported from, then what is there now."""
    # Installed, its names are one longer than in its tree.
    root = str(Path(__file__).resolve().parents[__name__.count(".")])
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([root, *(path for path in known if path and path != root)])

"""Paths of warehouses: how they are spelled, and which of them lie on this machine."""

import os
from pathlib import Path

_HERE = Path()
_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
"""Schemes of object stores."""


def one_spelling(path: str) -> str:
    """The path of a warehouse or of a table in the one spelling that Hadoop, Spark and delta-rs all know.

    Hadoop's connector for S3 is known as `s3a`, users say `s3`: both name the same bucket. A slash at the end says
    nothing.
    """
    scheme, colon, rest = path.partition("://")
    spelled = f"s3a://{rest}" if colon and scheme in ("s3", "s3a") else path
    return spelled.rstrip("/") or spelled


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
    """
    scheme, colon, rest = path.partition(":")
    if colon and "/" not in scheme:
        return Path("/", rest.lstrip("/")) if scheme == "file" and rest.startswith("/") else None
    return None if here is None else here / path


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

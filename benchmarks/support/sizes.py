"""Files of workloads: entries in a short and a full size."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def entries(file: Path, *, full: bool) -> list[dict[str, Any]]:
    """The entries of a file in one of their sizes: what all of them have, their own, and what that size has."""
    sizes = tomllib.loads(file.read_text(encoding="utf-8"))
    common = {key: value for key, value in sizes.items() if key != "workload"}
    return [_sized(merged(common, each), "full" if full else "short") for each in sizes["workload"]]


def _sized(entry: dict[str, Any], size: str) -> dict[str, Any]:
    plain = {key: value for key, value in entry.items() if key not in ("short", "full")}
    return merged(plain, entry[size])


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of TOML, the later ones winning key by key, in the tables within them too."""
    found: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = merged(found[key], value) if both else value
    return found

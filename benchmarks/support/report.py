"""How a benchmark tells its figures: row by row for a person, or all of them as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def machine_line(machine: Mapping[str, Any]) -> str:
    """What it was measured on, for a person."""
    return "machine: " + ", ".join(f"{key} {value}" for key, value in machine.items())


def tell(
    machine: Mapping[str, Any],
    rows: Iterable[dict[str, Any]],
    show: Callable[[dict[str, Any]], Iterable[str]],
    *,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Print the machine and each row as soon as it is measured, or everything as JSON at the end; give the rows."""
    if not as_json:
        print(machine_line(machine))
    found = []
    for row in rows:
        found.append(row)
        if not as_json:
            print("\n".join(show(row)), flush=True)
    if as_json:
        print(json.dumps({"machine": machine, "rows": found}))
    return found

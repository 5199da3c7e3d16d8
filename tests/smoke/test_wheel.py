"""The wheel, installed into an environment of its own beside somebody's packages of the same names; README with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.alone import alone
from tests.support.jobs import PATIENCE_S, said, started
from tests.support.modules import ROOT

OURS = ("conf", "jobs", "pipeline", "schemas", "state")
"""The folders of the tree, whose names somebody else's packages may have."""
ORDERS = ["order-1", "order-2", "order-3"]
"""The keys of the messages that the guide sends."""
SPARK_DEFAULTS = """
spark.databricks.delta.snapshotPartitions 1
spark.sql.shuffle.partitions 2
spark.sql.adaptive.enabled false
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.ui.enabled false
spark.ui.showConsoleProgress false
"""
PRODUCER = """
import delayline
import state, jobs, pipeline, schemas
assert (state.OWNER, jobs.OWNER, pipeline.OWNER, schemas.OWNER) == ("somebody",) * 4
delayline.create_all("warehouse")
delayline.subscribe("warehouse", delayline.Subscription("orders", "checkout", start="earliest", tick_ms=1))
print(delayline.send("warehouse", [delayline.OutgoingMessage("orders", b"pay", deliver_after_ms=1)]))
print(*(f"{each.topic} {each.name}" for each in delayline.subscriptions("warehouse")))
from delayline.pipeline.client import everything
assert everything.__all__ == delayline.__all__, "a strict type checker takes over no other names"
"""

PROGRAM = """
import delayline
import delayline.schema

with delayline.Client("warehouse") as client:
    sent: delayline.MessageId = client.create_producer("orders").send(b"pay")
    command = client.cancel("orders", where="true", dry_run=True)
    print(delayline.__version__, sent, command.selection.count)
"""


SENDER = """
import sys
from datetime import timedelta
from pathlib import Path
import delayline
import delayline.testing

with delayline.testing.warehouse() as warehouse:
    client = warehouse.client()
    letters = client.subscribe("given-up", "people", initial_position=delayline.InitialPosition.Earliest)
    policy = delayline.ConsumerDeadLetterPolicy(1, "given-up")
    options = {"negative_ack_redelivery_delay_ms": 60_000, "dead_letter_policy": policy}
    consumer = client.subscribe("orders", "checkout", delayline.ConsumerType.Shared, **options)
    producer = client.create_producer("orders")
    for key in ("paid", "unpaid"):
        producer.send(key.encode(), partition_key=key, deliver_after=timedelta(minutes=30))
    warehouse.run_until_idle()
    print(client.cancel("orders", key="paid").selection.count)
    for minutes in (30, 1):
        warehouse.advance(minutes=minutes)
        message = consumer.receive(5_000)
        print(message.data().decode(), message.redelivery_count())
        consumer.negative_acknowledge(message)
    warehouse.advance(minutes=1)
    print(letters.receive(5_000).data().decode())
print(sorted({"pyspark", "pandas", "delta", "prometheus_client"} & sys.modules.keys()))
# `docs/client.md` says that a small image may be without it.
assert "libarrow_flight" not in Path("/proc/self/maps").read_text()
"""
"""It produces, consumes, lets fail, gives up and cancels."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, what it depends on, and four packages of somebody else."""
    folder = tmp_path_factory.mktemp("installed")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    with alone("build"):  # it is done in the tree
        run([*words, "--wheel-dir", str(folder / "dist"), str(ROOT)], folder)
    # The packages that it depends on, and pip, are those of the tests: fetching Spark again would take minutes.
    venv.create(folder / "env", with_pip=False, symlinks=True)
    site = next((folder / "env" / "lib").glob("python*")) / "site-packages"
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "borrowed.pth").write_text(f"{here}\n")
    wheel = wheel_of(folder)
    python, pip = folder / "env" / "bin" / "python", folder / "env" / "bin" / "pip"
    run([str(python), *words[1:3], "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)], folder)
    pip.write_text(f'#!/bin/sh\nexec "{python}" -m pip "$@"\n')
    pip.chmod(0o755)
    for name in OURS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text('OWNER = "somebody"\n')
    return folder


def wheel_of(folder: Path) -> Path:
    """The wheel that was built there."""
    (wheel,) = (folder / "dist").glob("delayline-*.whl")
    return wheel


@pytest.fixture(scope="module")
def small(environment: Path) -> Path:
    """The Python of an environment with the wheel and what it asks for without an extra, and with nothing else."""
    venv.create(environment / "small", with_pip=False, symlinks=True)
    python = environment / "small" / "bin" / "python"
    site = next((environment / "small" / "lib").glob("python*")) / "site-packages"
    words = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel_of(environment))]
    run([sys.executable, *words], environment)
    (ours,) = metadata.distributions(name="delayline", path=[str(site)])
    waiting, seen = list(ours.requires or []), set[str]()
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.name not in seen and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            seen.add(wanted.name)
            found = metadata.distribution(wanted.name)
            assert found.version in wanted.specifier
            waiting += found.requires or []
            for top in {each.parts[0] for each in found.files or []} - {"..", "__pycache__"}:
                (site / top).symlink_to(str(found.locate_file(top)))
    return python


def clean() -> dict[str, str]:
    """The environment without anything by which Python could find the tree of the project."""
    return {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}


def run(words: list[str], folder: Path) -> str:
    """What a command printed, without the tree of the project on its way."""
    done = subprocess.run(  # noqa: S603
        words, cwd=folder, env=clean(), check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_brings_one_name_only(environment: Path) -> None:
    """Names as common as `state` and `jobs` belong to whoever had them first. Beside it the command has its script."""
    (wheel,) = (environment / "dist").glob("*.whl")
    listed = run([sys.executable, "-m", "zipfile", "--list", str(wheel)], environment).splitlines()[1:]
    names = [line.split()[0] for line in listed]
    assert {name.split("/")[0] for name in names if ".data/" not in name and ".dist-info/" not in name} == {"delayline"}
    assert [name.partition(".data/")[2] for name in names if ".data/" in name] == ["scripts/delayline"]
    assert any(line.startswith("delayline/py.typed ") for line in listed)


def test_a_producer_works_beside_packages_of_the_same_names(environment: Path) -> None:
    """`import delayline` is the door of the client."""
    python = environment / "env" / "bin" / "python"
    assert run([str(python), "-c", PRODUCER], environment).splitlines() == ["1", "orders checkout"]


def test_a_program_that_sends_and_receives_needs_no_extra(small: Path) -> None:
    """Nor do its tests; and a command that does names it, with no stack trace."""
    assert run([str(small), "-c", SENDER], small.parent).split("\n")[:-1] == [
        "1",
        "unpaid 0",
        "unpaid 1",
        "unpaid",
        "[]",
    ]
    words = [str(small.parent / "delayline"), "run", "--init", "--warehouse", "warehouse"]
    done = subprocess.run(words, cwd=small.parent, env=clean(), check=False, capture_output=True, text=True)  # noqa: S603
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'delayline[spark]'" in done.stderr


@pytest.mark.soak
def test_a_program_is_checked_by_the_types_of_the_package(environment: Path) -> None:
    """What the package says of types counts, also of options that stand in a typed dictionary."""
    python, program = environment / "env" / "bin" / "python", environment / "program.py"
    program.write_text(PROGRAM)
    assert "Success" in run([str(python), "-m", "mypy", "--strict", program.name], environment)
    program.write_text(PROGRAM.replace("dry_run=True", "dryrun=True").replace('b"pay"', 'b"pay", partition_key=7'))
    with pytest.raises(AssertionError, match=r"(?s)partition_key.*dryrun.*Found 2 errors"):
        run([str(python), "-m", "mypy", "--strict", program.name], environment)


def followed(environment: Path, page: Path) -> str:
    """What was printed while somebody followed a page word for word."""
    folder, tools = environment / page.stem, environment / "env" / "bin"
    folder.mkdir()
    (folder / "dist").symlink_to(environment / "dist")
    # What Spark does by itself is for large tables: fifty tasks to read a log of four versions, and compiled plans.
    (folder / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    words = [str(tools / "python"), "-P", str(ROOT / "tests" / "support" / "guide.py"), str(page)]
    variables = {"PATH": path, "PYTHONPATH": "", "SPARK_CONF_DIR": str(folder), "XDG_CACHE_HOME": f"{folder}/cache"}
    with started(words, folder, **variables) as guide:
        assert guide.wait(timeout=3 * PATIENCE_S) == 0, said(folder)
    return said(folder)


def test_a_program_has_tests_whose_time_is_turned(environment: Path) -> None:
    """The page of tests: three of them pass, by the fixture that is there when the package is."""
    assert "3 passed" in followed(environment, ROOT / "docs" / "testing.md")


@pytest.mark.soak
def test_a_newcomer_sees_in_ten_minutes_what_becomes_of_what_failed(environment: Path) -> None:
    """The page of retries: a program fails three times, the dead letter is put back, and is consumed."""
    text = followed(environment, ROOT / "docs" / "retry.md")
    assert re.findall(r"^scribble failed, after (\d) redeliveries$", text, re.MULTILINE) == ["0", "1", "2"]
    assert len(re.findall(r"^invoice \d is done$", text, re.MULTILINE)) == 2
    assert "given up: scribble nack" in text
    assert "1 put back" in text
    assert len(re.findall(r"^orders \d+:\d+  scribble  \(ack\)$", text, re.MULTILINE)) == 1


@pytest.mark.soak
def test_a_reader_changes_their_mind_about_messages_that_wait(environment: Path) -> None:
    """The page of commands: look, cancel, move, take back, and see what comes; each block prints what the page says."""
    text = followed(environment, ROOT / "docs" / "change-your-mind.md")
    assert re.findall(r"reminders/mail \[(\S+)\]  check in", text) == ["AA-4", "AA-4", "DL-3"]


@pytest.mark.soak
def test_a_reader_replays_tomorrow_today(environment: Path) -> None:
    """The page of clones: two of three messages come in the copy, and none in the source."""
    text = followed(environment, ROOT / "docs" / "clone.md")
    assert re.findall(r"reminders/mail \[(\S+)\]  check in", text) == ["AA-1", "AA-5"]
    assert re.findall(r"^reminders  (\d) pending", text, re.MULTILINE) == ["1", "3"]
    assert "Nothing is wrong." in text


@pytest.mark.soak
def test_a_reader_sets_policies_and_sees_what_is_held_come(environment: Path) -> None:
    """The page of policies: each block prints what the page says."""
    text = followed(environment, ROOT / "docs" / "policies.md")
    assert re.findall(r"order \d", text)[-10:] == [f"order {number}" for number in range(10)]
    assert re.findall(r"^(?:expired|suppressed) orders reminders.*", text, re.MULTILINE) == [
        "expired orders reminders None None",
        "suppressed orders reminders 4713 [('paid', '0')]",
    ]


@pytest.mark.soak
def test_a_reader_lets_messages_come_by_day(environment: Path) -> None:
    """The page of windows: what is sent at night comes in the morning; each block prints what the page says."""
    text = followed(environment, ROOT / "docs" / "windows.md")
    assert re.findall(r"^06:0\d Europe/Rome \d$", text, re.MULTILINE)


@pytest.mark.soak
def test_a_reader_lets_one_message_of_a_key_wait(environment: Path) -> None:
    """The page of keys: the newest one, the first one, or each five minutes; each block prints what the page says."""
    text = followed(environment, ROOT / "docs" / "keys.md")
    assert re.findall(r"^10:20:00 anna .*$", text, re.MULTILINE) == ["10:20:00 anna a chair"]


@pytest.mark.soak
def test_a_reader_gives_each_tenant_its_turn(environment: Path) -> None:
    """The page of turns: who has one message is among the first; each block prints what the page says."""
    text = followed(environment, ROOT / "docs" / "fairness.md")
    assert "1 [('gold', 14), ('large', 5), ('small', 1)]" in text


def test_the_guide_of_the_readme_works_word_for_word(environment: Path) -> None:
    """Install, init, subscribe, run, produce and consume in all the ways it names, stop: as a reader types it."""
    text = followed(environment, ROOT / "README.md")
    for order in ORDERS:
        assert len(re.findall(rf"orders/checkout \[{order}\]  not paid yet\?", text)) == 1  # receive
        assert len(re.findall(rf"^\|{order} *\|.*\|not paid yet\?\|$", text, re.MULTILINE)) == 1  # SQL
    assert sorted(re.findall(r"order-\d", " ".join(re.findall(r"to remind: (\[.*\])", text)))) == ORDERS  # readStream
    assert "orders/checkout  nothing pending" in text

"""The wheel, installed into an environment of its own beside somebody's packages of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.jobs import PATIENCE_S
from tests.support.modules import ROOT

OURS = ("conf", "jobs", "pipeline", "schemas", "state")
"""The folders of the tree, whose names somebody else's packages may have."""
PRODUCER = """
import delayline
import state, jobs, pipeline, schemas
assert (state.OWNER, jobs.OWNER, pipeline.OWNER, schemas.OWNER) == ("somebody",) * 4
delayline.create_all("warehouse")
delayline.subscribe("warehouse", delayline.Subscription("orders", "checkout", start="earliest", tick_ms=1))
print(delayline.send("warehouse", [delayline.Message("orders", b"pay", deliver_after_ms=1)]))
print(*(f"{each.topic} {each.name}" for each in delayline.subscriptions("warehouse")))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, what it depends on, and four packages of somebody else."""
    folder = tmp_path_factory.mktemp("installed")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*words, "--wheel-dir", str(folder / "dist"), str(ROOT)], folder)
    # The packages that it depends on are those of the tests: fetching Spark again would take minutes.
    venv.create(folder / "env", with_pip=False, symlinks=True)
    site = next((folder / "env" / "lib").glob("python*")) / "site-packages"
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "borrowed.pth").write_text(f"{here}\n")
    (wheel,) = (folder / "dist").glob("delayline-*.whl")
    run([*words[:3], "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)], folder)
    for name in OURS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text('OWNER = "somebody"\n')
    return folder


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
    """Names as common as `state` and `jobs` belong to whoever had them first."""
    (wheel,) = (environment / "dist").glob("*.whl")
    listed = run([sys.executable, "-m", "zipfile", "--list", str(wheel)], environment).splitlines()[1:]
    tops = {line.split("/")[0] for line in listed}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"delayline"}


def test_a_producer_and_the_command_work_beside_packages_of_the_same_names(environment: Path) -> None:
    """`import delayline` is the door of the client; the command is the same code."""
    python = environment / "env" / "bin" / "python"
    assert run([str(python), "-c", PRODUCER], environment).splitlines() == ["1", "orders checkout"]
    command = [str(python), "-m", "delayline.jobs.cli"]
    assert "orders" in run([*command, "pending", "--warehouse", "warehouse"], environment)
    warehouse = ["--warehouse", "warehouse"]
    with (environment / "run.log").open("w") as log:
        service = subprocess.Popen([*command, "run", *warehouse], cwd=environment, env=clean(), stdout=log, stderr=log)  # noqa: S603
    try:
        assert "pay" in run([*command, "receive", *warehouse, "--limit", "1"], environment)
        run([*command, "stop", *warehouse], environment)
        assert service.wait(timeout=PATIENCE_S) == 0, (environment / "run.log").read_text()
    finally:
        service.kill()

"""An interrupt of the command, from its first moment on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from jobs import interrupts
from tests.support.client import new_warehouse
from tests.support.invoked import run
from tests.support.modules import ROOT

INTERRUPTED = """
import os, signal, sys
from jobs.start import main
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "jobs.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
main()
"""


def test_an_interrupt_while_the_command_is_loaded_ends_it_without_a_trace() -> None:
    """In the first third of a second it was a stack trace of whatever was being imported."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_script_loads_nothing_before_an_interrupt_ends_it(tmp_path: Path) -> None:
    """That of an installer loads `re`, and then the package: a tenth of a second on a machine that is busy."""
    package, script = tmp_path / "delayline", tmp_path / "bin" / "command"
    for folder in (package, script.parent):
        folder.mkdir()
    (package / "__init__.py").write_text("import os, sys\nprint(*sys.modules)\nos.kill(os.getpid(), 2)\n")
    script.write_text((ROOT / "jobs" / "delayline").read_text(encoding="utf-8"))
    words = [sys.executable, "-S", "-u", str(script)]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert not {"re", "signal", "typing"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("before", "after"), [(interrupts.end, interrupts.interrupt), (signal.SIG_IGN, signal.SIG_IGN)]
)
def test_an_interrupt_of_a_command_is_its_own_matter(tmp_path: Path, before: object, after: object) -> None:
    """It has something to end; and one that ignores interrupts goes on to do so."""
    old = signal.signal(signal.SIGINT, before)  # type: ignore[arg-type] # either is a handler
    try:
        assert run(new_warehouse(str(tmp_path)), "topics").exit_code == 0
        assert signal.getsignal(signal.SIGINT) is after
    finally:
        signal.signal(signal.SIGINT, old)

"""Guides that are typed word for word: what goes on in the background does not outlive them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import guide

_PATIENCE_S = 60
_KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def followed(folder: Path, *blocks: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    """What became of a guide. Its output is at its end when nobody is there any more who might write into it."""
    content = "\n".join(f"```{kind}\n{text}\n```" for kind, text in blocks)
    (folder / "page.md").write_text(f"{guide.BEGIN}\n{content}\n{guide.END}\n", encoding="utf-8")
    words = [sys.executable, "-P", guide.__file__, "page.md"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)  # noqa: S603


def test_what_goes_on_in_the_background_ends_with_the_guide_that_was_killed(tmp_path: Path) -> None:
    """A job would run on, and hold its warehouse."""
    done = followed(tmp_path, ("shell", "tail -f /dev/null &"), ("python", _KILLED))
    assert done.returncode == -signal.SIGKILL


def test_a_guide_is_through_when_what_went_on_beside_it_has_ended(tmp_path: Path) -> None:
    """Its blocks are typed meanwhile, and its code counts."""
    beside = "until [ -e told ]; do :; done; echo beside; exit {} &"
    blocks = ("shell", "echo before"), ("python", "open('told', 'w').close(); print('python')")
    done = followed(tmp_path, ("shell", f"({beside.format(0)[:-2]}) &"), *blocks)
    assert (done.returncode, {"before", "python", "beside"} - set(done.stdout.splitlines())) == (0, set())
    (tmp_path / "told").unlink()
    assert followed(tmp_path, ("shell", f"({beside.format(3)[:-2]}) &"), *blocks).returncode == 1


@pytest.mark.parametrize(
    ("printed", "expected", "code"),
    [
        ("2 at 2026-11-25T09:28:53.001Z (0.024 s late)", "2 at 2026-01-01T00:00:00.000Z (due then)", 0),
        ("in 59m 6s 3:17 4d3b6e0a-5c1c-4a2c-8b6a-3f7f0b1a9a51", "in 1h 0:0 00000000-...", 0),
        ("2 named", "3 named", 1),
        ("one line", "one line\nand another", 1),
    ],
)
@pytest.mark.parametrize("kind", ["shell", "python"])
def test_what_a_block_prints_is_what_the_page_says(
    tmp_path: Path, kind: str, printed: str, expected: str, code: int
) -> None:
    """But for times, spans, positions and ids."""
    text = f"echo '{printed}'" if kind == "shell" else f"print('{printed}')"
    assert followed(tmp_path, (kind, text), ("", expected), ("shell", "true")).returncode == code

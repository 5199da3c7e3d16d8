"""Follows the guide of a page that talks of a broker, as it stands, with a broker of a test in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support import guide
from tests.support.modules import ROOT

_PATIENCE_S = 400
_PROFILES = ("local.toml", "kafka.toml")


def typed(folder: Path, page: str, changed: Mapping[str, str]) -> str:
    """Type all that a page says, in a folder that has what it names; give what was printed.

    Args:
        folder: where it is typed.
        page: the name of the page in `docs`.
        changed: texts of the page, and of the profiles beside it, and what is typed in their place.
    """
    (folder / "conf").mkdir()
    for name in _PROFILES:
        (folder / "conf" / name).write_text(_with(ROOT / "conf" / name, changed), encoding="utf-8")
    command = folder / "bin" / "delayline"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec "{sys.executable}" -m jobs.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [each for each in changed if each not in text] == []
    (folder / "page.md").write_text(_with(ROOT / "docs" / page, changed), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-P", guide.__file__, str(folder / "page.md")],
        cwd=folder,
        env=os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _with(path: Path, changed: Mapping[str, str]) -> str:
    text = path.read_text(encoding="utf-8")
    for said, instead in changed.items():
        text = text.replace(said, instead)
    return text

"""Java, which Spark needs: found, or one clear line."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pipeline.config.errors import PipelineError

LEAST = 17


class NoJava(PipelineError):
    """Spark cannot start: no suitable Java. Install one, or point JAVA_HOME to it."""

    def __init__(self, looked_at: str, found: int | None) -> None:
        what = "was not found" if found is None else f"is needed, this is {found}"
        super().__init__(
            f"Java {LEAST} or newer {what} ({looked_at}). "
            "Install a JDK (Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME."
        )
        self.looked_at, self.found = looked_at, found


def need_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The Java that Spark will start: JAVA_HOME first, then PATH.

    Raises:
        NoJava: there is none, or it is too old.
    """
    home = environment.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else "java"
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        raise NoJava(program, None)
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    match = re.search(r'version "(\d+)', said.stderr + said.stdout)
    found = int(match[1]) if match else None
    if found is None or found < LEAST:
        raise NoJava(program, found)
    return Path(path)

"""What `deploy` says fits together."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.support.modules import ROOT

UNIT, MANIFEST = (ROOT / "deploy" / name for name in ("delayline.service", "kubernetes.yaml"))
KUBERNETES = ("1.29", "1.37")
"""The oldest release that has all that the manifest says, and the newest that the checker knows."""


def test_the_user_of_the_service_has_the_folder_that_the_service_may_write_as_home() -> None:
    """Java looks for it in /etc/passwd and not in HOME, and Spark puts its JARs there."""
    text = UNIT.read_text(encoding="utf-8")
    values = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]\w+=", line))
    made = re.search(r"^# +useradd --system --home-dir (\S+) (\S+)$", text, re.MULTILINE)
    assert made is not None
    assert made.groups() == (f"/var/lib/{values['StateDirectory']}", values["User"])
    assert values["Environment"] == f"HOME={made[1]}"


@pytest.mark.skipif(which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize(("line", "understood"), [("", True), ("MemoryLeast=1G", False)])
def test_systemd_understands_the_unit(tmp_path: Path, line: str, *, understood: bool) -> None:
    """A word that it does not know is passed over, and the service lacks what the word asks for."""
    # The program of the unit need not be here.
    text = UNIT.read_text(encoding="utf-8").replace("/opt/delayline/bin/delayline", "/bin/true")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("[Service]", f"[Service]\n{line}"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], check=False, capture_output=True, text=True)  # noqa: S603, S607 - the system's own
    assert (done.returncode == 0 and not done.stderr) is understood, done.stderr


def objects() -> list[dict[str, Any]]:
    """What the manifest describes."""
    yaml = pytest.importorskip("yaml", reason="the manifest needs requirements/all.lock")
    return list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))


@pytest.mark.parametrize("release", KUBERNETES)
def test_kubernetes_knows_each_word_of_the_manifest(release: str) -> None:
    """By its own schemas, strictly: a field that it does not know is an error, and not passed over."""
    checker = pytest.importorskip("kubernetes_validate", reason="the manifest needs requirements/all.lock")
    assert [each["kind"] for each in objects()] == ["Service", "StatefulSet"]
    for each in objects():
        checker.validate(each, release, strict=True)
        with pytest.raises(checker.ValidationError):
            checker.validate({**each, "speck": {}}, release, strict=True)


def test_the_pod_runs_a_command_in_the_image_with_its_user_and_folder() -> None:
    """What the manifest says of the image is so."""
    image = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    pod = objects()[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = pod["securityContext"]
    assert f"--uid {user['runAsUser']} --gid {user['runAsGroup']} --home-dir /var/lib/delayline" in image
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/var/lib/delayline"]
    pytest.importorskip("typer", reason="the command needs requirements/all.lock")
    from tests.support.invoked import commands  # noqa: PLC0415 - only where everything is installed

    command = dict(commands())[container["args"][0]]
    with command.make_context("run", container["args"][1:]) as context:
        assert context.params["metrics_port"] == container["ports"][0]["containerPort"]

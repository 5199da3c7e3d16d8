"""What lies outside of the warehouse is for the user of the job alone: sockets, spilled rows, kept JARs, metrics."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the session needs requirements/all.lock")

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from jobs.commands import spark
from jobs.commands.startcache import Kept
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadSetting
from pipeline.config.options import Watching
from pipeline.config.paths import python_environment, python_path
from pipeline.config.session import Machine, private_folders, submitted_session
from tests.support.pages import block_of, span_of

_BIN = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
"""Where a shell looks for `python`."""


def test_sockets_and_spilled_rows_lie_in_a_folder_that_nobody_else_may_enter() -> None:
    """With a loose umask others could write to a socket of a worker, and so run code as the job."""
    settings = private_folders()
    assert set(settings) == {"spark.python.unix.domain.socket.dir", "spark.local.dir"}
    (folder,) = {Path(each) for each in settings.values()}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(str(folder)) < 70


@pytest.mark.parametrize("said", [{"dir": "/var/lib/d"}, {"enabled": "false"}, {}])
def test_what_spark_submit_is_told_of_sockets_wins(monkeypatch: pytest.MonkeyPatch, said: dict[str, str]) -> None:
    """The page says to tell it where they lie, or that there are none: ours were set again over that."""
    stated, made = SparkConf(loadDefaults=False), dict[str, str]()
    for name, value in said.items():
        stated.set(span_of("security.md", f"spark.python.unix.domain.socket.{name}"), value)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr("pyspark.SparkConf", lambda: stated)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: made.update(builder._options))
    submitted_session("a")
    assert {name: made[f"spark.python.unix.domain.socket.{name}"] for name in ("dir", "enabled")} == {
        "dir": "/tmp",  # noqa: S108 - as the sessions of the project have it
        "enabled": "true",
    } | said


@pytest.mark.parametrize("module", ["pyspark.daemon", "pipeline.sinks.program", "jobs.demo.worker"])
def test_what_lies_in_the_folder_where_somebody_stands_is_not_run(tmp_path: Path, module: str) -> None:
    """Python imports a `traceback.py` from there before its own, in each process that is started by its module."""
    mark = tmp_path / "mark"
    (tmp_path / "traceback.py").write_text(f"open({str(mark)!r}, 'w')\nraise SystemExit(9)\n")

    def start(environment: dict[str, str]) -> bool:
        words = [sys.executable, "-m", module]
        subprocess.run(  # noqa: S603 - our own
            words, cwd=tmp_path, env=environment, check=False, stdin=subprocess.DEVNULL, capture_output=True
        )
        return mark.exists()

    plain = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    assert not start(plain | python_environment())
    assert start(plain | {"PYTHONPATH": python_path()}), "the file would run, if it were looked at"


@pytest.mark.parametrize("way", ["python -P -m", "PYTHONSAFEPATH=1"])
def test_what_lies_there_is_not_run_when_somebody_says_what_the_page_says(tmp_path: Path, way: str) -> None:
    """By hand, and for the driver under spark-submit."""
    (tmp_path / "argparse.py").write_text("raise SystemExit(9)\n")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | {"PATH": _BIN}

    def start(words: str) -> int:
        line = f"{words} json.tool --help"
        return subprocess.run(line, shell=True, cwd=tmp_path, env=plain, check=False, capture_output=True).returncode  # noqa: S602 - of a page

    said = span_of("security.md", way)
    assert start("python -m") == 9
    assert start(said if said.startswith("python") else f"{said} python -m") == 0


def test_jars_that_are_not_those_of_the_lock_are_printed_by_the_command_of_the_page(tmp_path: Path) -> None:
    """One that is another, and one that came with them; then spark-submit is not to be started."""
    (line,) = block_of("security.md", "sha256sum")
    folder, locked = tmp_path / ".ivy2.5.2" / "jars", tmp_path / "jars.lock"
    folder.mkdir(parents=True)
    (folder / "a-1.jar").write_bytes(b"a")
    locked.write_text(f"{hashlib.sha256(b'a').hexdigest()}  a-1.jar\n{'0' * 64}  of-s3-1.jar\n")

    def printed() -> list[str]:
        environment = os.environ | {"HOME": str(tmp_path), "LOCK": str(locked)}
        done = subprocess.run(line, shell=True, env=environment, check=False, capture_output=True, text=True)  # noqa: S602 - of a page
        return [each.split()[1] for each in (done.stdout + done.stderr).splitlines()]

    assert printed() == []
    (folder / "a-1.jar").write_bytes(b"another")
    (folder / "b-1.jar").write_bytes(b"b")
    assert printed() == ["a-1.jar", "b-1.jar"]


def test_a_package_with_another_sum_than_the_lock_has_is_not_installed(tmp_path: Path) -> None:
    """As the page installs them: an index may give another file under the name that it is asked for."""
    first, *_ = block_of("security.md", "--require-hashes")
    lock, wheel = tmp_path / "requirements" / "core.lock", tmp_path / "iniconfig-9-py3-none-any.whl"
    lock.parent.mkdir()
    with ZipFile(wheel, "w") as made:
        made.writestr("iniconfig.py", "")
        made.writestr("iniconfig-9.dist-info/METADATA", "Metadata-Version: 2.1\nName: iniconfig\nVersion: 9\n")
        made.writestr("iniconfig-9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("iniconfig-9.dist-info/RECORD", "")

    def installed(content: bytes) -> bool:
        lock.write_text(f"iniconfig==9 \\\n    --hash=sha256:{hashlib.sha256(content).hexdigest()}\n")
        stated = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_TARGET": str(tmp_path / "site")}
        done = subprocess.run(  # noqa: S602 - of a page
            f"python -m {first}",
            shell=True,
            cwd=tmp_path,
            env=os.environ | stated | {"PATH": _BIN},
            check=False,
            capture_output=True,
        )
        return done.returncode == 0 and (tmp_path / "site" / "iniconfig.py").exists()

    assert not installed(b"of the lock")
    assert installed(wheel.read_bytes())


def test_the_log_of_a_start_is_a_new_file_that_nobody_else_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may put a link with a name that they can guess into the folder for temporary files."""
    theirs, shared = tmp_path / "theirs", tmp_path / "shared"
    theirs.touch()
    shared.mkdir()
    (shared / f"delayline-{os.getpid()}.log").symlink_to(theirs)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setattr(spark, "need_java", lambda: tmp_path)
    monkeypatch.setattr(spark, "kept_session", lambda *_, **__: os.write(2, b"Java says\n") and 1 / 0)
    before = os.umask(0)
    try:
        with pytest.raises(spark.NoSession) as failed, spark.session("a", Machine()):
            pass
    finally:
        os.umask(before)
    log = failed.value.log
    assert (log.parent, log.read_bytes(), theirs.read_bytes()) == (shared, b"Java says\n", b"")
    assert not log.is_symlink()
    assert log.stat().st_mode & 0o777 == 0o600


def test_jars_are_not_taken_from_a_folder_to_which_others_may_write(tmp_path: Path) -> None:
    """Whoever writes its list chooses what runs as the user."""
    kept, jar = Kept(tmp_path / "delayline", "name"), tmp_path / "a.jar"
    jar.touch()
    kept.folder.mkdir(mode=0o700)
    kept._list.write_text(str(jar))
    assert kept.jars() == [str(jar)]
    for mode in (0o777, 0o770, 0o702):
        kept.folder.chmod(mode)
        assert kept.jars() == []
    kept.folder.chmod(0o755)
    assert kept.jars() == [str(jar)]


def test_metrics_are_served_on_the_loopback_unless_the_profile_names_an_address() -> None:
    """They have names of topics and how much passes."""
    assert Watching(9_464).metrics_address == "127.0.0.1"
    assert Watching(9_464, None, "0.0.0.0").metrics_address == "0.0.0.0"  # noqa: S104 - what somebody states
    for address in ("", "here", "300.0.0.1", None, 5_000_000_000_000):
        with pytest.raises(BadSetting):
            Watching(9_464, None, address)  # type: ignore[arg-type] # what a profile may hold


def test_a_warehouse_that_is_made_with_a_strict_umask_is_closed_to_others(tmp_path: Path) -> None:
    """`docs/security.md` shows teams that do not trust each other on one machine."""
    root, before = tmp_path / "warehouse", os.umask(0o027)
    try:
        create_all(str(root))
        subscribe(str(root), Subscription("t", "s"))
        send(str(root), [OutgoingMessage("t", b"secret")])
    finally:
        os.umask(before)
    assert [path for path in (root, *root.rglob("*")) if path.stat().st_mode & 0o007] == []

"""A folder of files as a source: what a profile may say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")

from pipeline.config.errors import BadSetting
from pipeline.config.sources import Source
from pipeline.delta.checkpoints import Checkpoint
from pipeline.sources.files import forget_gone
from pipeline.sources.running import door_of
from pipeline.storage.files import Files

COLUMNS = "id STRING"


@pytest.mark.parametrize(
    ("address", "options", "field"),
    [
        ("json:/landing", {}, "columns"),
        *((f"json:/{folder}", {"columns": COLUMNS}, "from") for folder in ("a[b]", "a{b,c}", "a*", "a\\b")),
        ("json:/landing?header=true", {"columns": COLUMNS}, "from"),
        ("csv:/landing?separator=;", {"columns": COLUMNS}, "from"),
        ("parquet:/landing", {"columns": COLUMNS, "max_rows": 5}, "max_rows"),
        ("delta:/table", {"columns": COLUMNS}, "columns"),
        ("orc:/landing", {"columns": COLUMNS}, "from"),
        ("json:/landing", {"columns": COLUMNS, "admin": "http://h:8080"}, "admin"),
        ("pulsar://h:6650/a/b/c", {"admin": "h:8080"}, "admin"),
    ],
)
def test_what_a_folder_cannot_be_told_is_refused(address: str, options: dict[str, Any], field: str) -> None:
    """No option does nothing; the error names it as the profile does."""
    with pytest.raises(BadSetting) as refused:
        door_of(Source("a", address, **options))
    assert refused.value.field == f"source.a.{field}"


def test_a_folder_has_no_latest_place() -> None:
    """Spark's stream begins with the files that are there."""
    with pytest.raises(BadSetting) as refused:
        door_of(Source("a", "json:/landing", columns=COLUMNS, start="latest")).latest(None)  # type: ignore[arg-type] # not asked
    assert refused.value.field == "source.a.start"


def test_an_address_may_name_options_of_the_reader() -> None:
    """As Spark names them."""
    door_of(Source("a", "csv:/landing?header=true&sep=%3B&pathGlobFilter=*.csv", columns=COLUMNS))


def listed(checkpoint: Path) -> list[str]:
    """The names in the newest entry that has all before it."""
    lines = (checkpoint / "sources/0/9.compact").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "v1"
    return [Path(json.loads(line)["path"]).name for line in lines[1:]]


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_files_that_are_gone_are_forgotten(tmp_path: Path, scheme: str) -> None:
    """The list, which Spark holds in memory and writes anew each tenth batch, grew for as long as a source lived."""
    folder, checkpoint = tmp_path / "the%20irs", tmp_path / "checkpoint"
    folder.mkdir()
    names = [f"{number} \u00e9.json" for number in range(10)]
    for name in names:
        (folder / name).touch()
    entries = [
        {"path": f"{scheme}{quote(str(folder))}/{quote(name)}", "timestamp": 0, "batchId": number}
        for number, name in enumerate(names)
    ]
    (checkpoint / "sources/0").mkdir(parents=True)
    (checkpoint / "sources/0/9.compact").write_text("\n".join(["v1", *map(json.dumps, entries)]), encoding="utf-8")
    (checkpoint / "sources/0/.9.compact.crc").touch()

    def forgotten() -> int:
        return forget_gone(Files(), Checkpoint(Files(), str(checkpoint)))

    assert forgotten() == 0
    for name in (*names[:4], names[9]):
        (folder / name).unlink()
    assert forgotten() == 4
    assert [unquote(name) for name in listed(checkpoint)] == names[4:], "Spark may ask for the last ones again"
    assert not (checkpoint / "sources/0/.9.compact.crc").exists()
    folder.rename(tmp_path / "away")
    assert forgotten() == 0, "the folder is away, and its files are not"


@pytest.mark.parametrize("away", ["one", "one/deep"])
def test_files_of_a_folder_that_may_be_away_are_not_forgotten(tmp_path: Path, away: str) -> None:
    """A disk is mounted below the folder of the source, and was not when it began: all its files would come again."""
    log, landing = tmp_path / "checkpoint/sources/0", tmp_path / "landing"
    log.mkdir(parents=True)
    (landing / "one").mkdir(parents=True)
    (landing / "two/later").mkdir(parents=True)
    (landing / "two/later/there").touch()
    (landing / "file").touch()
    names = [f"{away}/a", "two/later/there", "two/later/gone", "two/earlier/gone", "file/gone"]
    entries = [{"path": (landing / name).as_uri(), "timestamp": 1, "batchId": n} for n, name in enumerate(names)]
    (log / "9.compact").write_text("\n".join(["v1", *map(json.dumps, entries)]), encoding="utf-8")
    assert forget_gone(Files(), Checkpoint(Files(), str(tmp_path / "checkpoint"))) == 2
    assert listed(tmp_path / "checkpoint") == ["a", "there", "gone"]

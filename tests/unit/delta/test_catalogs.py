"""A table whose commits a catalog manages: everybody refuses it by its name, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.stages import ALL_STAGES
from pipeline.delta.logs.features import CatalogManaged
from pipeline.delta.tables import bring_up_to_date
from pipeline.doctor.examine import examine
from schemas import DELIVERIES, INBOX, SCHEDULES, SUBSCRIPTIONS, Table
from tests.support.examined import BEHIND_ALL
from tests.support.forged import INFO, version
from tests.support.invoked import run
from tests.support.stages import Stages

FEATURES = ("catalogManaged", "catalogOwned-preview")


def give(root: str, table: Table, feature: str) -> None:
    """A catalog takes a table over."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature]}
    version(root, table, INFO, {"protocol": protocol | {"writerFeatures": [feature, "inCommitTimestamp"]}})


def entries(root: str) -> list[str]:
    """The entries of all logs."""
    return sorted(str(each) for each in Path(root).glob("*/_delta_log/*.json"))


@pytest.mark.parametrize("table", [INBOX, SUBSCRIPTIONS, DELIVERIES, SCHEDULES], ids=lambda table: table.name)
@pytest.mark.parametrize("feature", FEATURES)
def test_a_start_refuses_a_table_whose_commits_a_catalog_manages(tmp_path: Path, table: Table, feature: str) -> None:
    """The newest versions of such a table are not in its folder, and what is committed there is lost."""
    stages = Stages(str(tmp_path / "warehouse"))
    give(stages.root, table, feature)
    before = entries(stages.root)
    for stage in ALL_STAGES:
        with pytest.raises(CatalogManaged) as refused:
            stages.start(stage)
        assert (refused.value.table, refused.value.feature) == (table.name, feature)
    with pytest.raises(CatalogManaged):
        bring_up_to_date(stages.warehouse)
    assert entries(stages.root) == before


def test_a_client_and_a_command_say_the_same(tmp_path: Path) -> None:
    """delta-rs says of it that a version is missing, which helps nobody."""
    root = Stages(str(tmp_path / "warehouse")).root
    give(root, INBOX, FEATURES[0])
    with pytest.raises(CatalogManaged) as refused:
        send(root, [OutgoingMessage("t", b"lost")])
    assert (refused.value.table, refused.value.feature) == ("inbox", FEATURES[0])
    result = run(root, "send", "-t", "t", "lost")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, f"delayline: {refused.value}")


def test_the_doctor_names_the_table_and_what_to_do(tmp_path: Path) -> None:
    """A copy of the warehouse would not help."""
    root = Stages(str(tmp_path / "warehouse")).root
    give(root, DELIVERIES, FEATURES[0])
    (finding,) = [each for each in examine(root, BEHIND_ALL).findings if each.what == "table_unreadable"]
    assert finding.subject == "deliveries"
    assert "docs/catalogs.md" in finding.remedy


def test_what_another_feature_says_is_told_as_before(tmp_path: Path) -> None:
    """The sentence is for catalogs alone."""
    root = Stages(str(tmp_path / "warehouse")).root
    give(root, INBOX, "deletionVectors")
    Stages(root).start(ALL_STAGES[0])

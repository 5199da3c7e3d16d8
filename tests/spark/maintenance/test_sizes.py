"""What a start chooses by itself, from the properties of a warehouse and the cores of a session."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from pyspark.sql import SparkSession

from jobs.commands.sizes import sized
from pipeline.client.create import create_all
from pipeline.config.errors import BadSetting
from pipeline.config.profiles import Profile, read_profile
from pipeline.config.session import PARTITIONS
from pipeline.config.settings import MINUTE_MS
from pipeline.delta.tables import place
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.rounds import own_session
from tests.support.stream import empty_warehouse


def profile(folder: Path, text: str) -> Profile:
    """A profile that states what a text says."""
    (folder / "profile.toml").write_text(text, encoding="utf-8")
    return read_profile(folder / "profile.toml")


def with_rate(spark: SparkSession, folder: str, value: str) -> Warehouse:
    """A warehouse of segments of five minutes whose rate somebody changed."""
    copytree(empty_warehouse(5 * MINUTE_MS), folder)
    spark.sql(f"ALTER TABLE delta.`{folder}/segments` SET TBLPROPERTIES ('delayline.rate' = '{value}')")
    return Warehouse(folder, spark)


def test_a_start_takes_the_rate_from_the_warehouse_and_the_cores_from_the_session(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """Both were known before anybody read a profile; the session has its partitions before a query starts."""
    create_all(folder, rate=100_000)
    session, said = spark.newSession(), list[str]()
    warehouse = Warehouse(folder, session)
    cores = spark.sparkContext.defaultParallelism
    found = sized(warehouse, profile(tmp_path, ""), said.append)
    assert session.conf.get(PARTITIONS) == str(found.machine.partitions) == str(cores)
    stated = place(warehouse)
    assert (stated.rate, stated.segment_ms) == (100_000, 2_000)
    assert (found.options.settings.partitions, found.options.settings.horizon_ms) == (cores, 2 * MINUTE_MS)
    assert said[0].startswith(f"Chosen for 100,000 messages a second, segments of 2s, {cores} cores, ")


def test_what_a_profile_states_reaches_the_session(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    """Also a number of partitions that no rule would give."""
    session, said = spark.newSession(), list[str]()
    stated = profile(tmp_path, "[session]\npartitions = 77\n[settings]\nhorizon_ms = 1\n")
    found = sized(with_rate(session, folder, "1"), stated, said.append)
    assert session.conf.get(PARTITIONS) == own_session(session).conf.get(PARTITIONS) == "77"
    assert found.options.settings.horizon_ms == 1
    assert [line for line in said if "session.partitions" in line or "horizon_ms" in line] == []


def test_a_rate_that_somebody_broke_ends_a_start(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    """Nothing is chosen for a rate that is none."""
    with pytest.raises(BadSetting) as refused:
        sized(with_rate(spark.newSession(), folder, "fast"), profile(tmp_path, ""), print)
    assert (refused.value.field, refused.value.value) == ("delayline.rate", "fast")

"""The settings that a start of the job chooses by itself, here, for a warehouse."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from jobs.commands.sizes import sized
from pipeline.profiles import read_profile
from pipeline.settings import Settings
from pipeline.tables import Warehouse

LOCAL = Path(__file__).resolve().parents[1] / "conf" / "local.toml"


def usual(spark: SparkSession, warehouse: Warehouse) -> Settings:
    """What is measured is what a user gets."""
    return sized(spark, warehouse, read_profile(LOCAL), lambda _: None).options.settings

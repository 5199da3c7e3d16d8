"""The settings that a start of the job chooses by itself, here, for a warehouse."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.profiles import fitted, read_profile
from pipeline.settings import Settings
from pipeline.tables import Warehouse, place

LOCAL = Path(__file__).resolve().parents[1] / "conf" / "local.toml"


def usual(spark: SparkSession, warehouse: Warehouse) -> Settings:
    """What is measured is what a user gets."""
    return fitted(read_profile(LOCAL), place(spark, warehouse))[0].options.settings

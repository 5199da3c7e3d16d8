"""The session and the settings that a start of the job has by itself, here, for a warehouse."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.support import ROOT
from pipeline.config.profiles import fitted, read_profile
from pipeline.config.session import PARTITIONS, Machine
from pipeline.config.settings import Settings
from pipeline.delta.tables import place
from pipeline.delta.warehouse import Warehouse

LOCAL = ROOT / "conf" / "local.toml"


def usual_machine(memory: str) -> Machine:
    """What the job takes of this machine, with so much memory."""
    return replace(read_profile(LOCAL).machine, memory=memory)


def usual(warehouse: Warehouse) -> Settings:
    """What is measured is what a user gets; the session gets its shuffle partitions."""
    profile, _ = fitted(read_profile(LOCAL), place(warehouse))
    warehouse.spark.conf.set(PARTITIONS, str(profile.machine.partitions))
    return profile.options.settings

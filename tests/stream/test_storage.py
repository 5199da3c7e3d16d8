"""Storage that fails for a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from schemas import MESSAGES, REJECTED_DISPATCH
from tests.support.stream import World, advance, append, check, delivered, message, play, restart, subscribe

T0 = 1_700_000_000_000


def test_payloads_that_cannot_be_read_for_a_while_are_all_delivered(spark: SparkSession, folder: str) -> None:
    """A file that is away stops the stage and settles nothing: when it is back, everything comes, once, in order."""

    def move(world: World, old: str, new: str) -> None:
        files = list(Path(world.warehouse.root, MESSAGES.name).glob(f"*{old}"))
        assert files
        for file in files:
            file.rename(file.with_name(file.name.removesuffix(old) + new))

    def failing(world: World) -> None:
        move(world, ".parquet", ".away")
        with pytest.raises(StreamingQueryException, match="parquet"):
            advance(T0 + 1_000)(world)
        world.end()
        assert world.rows(REJECTED_DISPATCH) == []
        move(world, ".away", ".parquet")

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(*(message(f"{i}", after=1_000) for i in range(3)), message("now"), message("later", after=2_000)),
            advance(T0),
            check(failing),
            delivered("now"),
            restart(),
            delivered("now", "0", "1", "2"),
            advance(T0 + 2_000),
            delivered("now", "0", "1", "2", "later"),
        ],
    )

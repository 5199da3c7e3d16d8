"""What a job leaves behind: the stages work on a steady load in this process, by a clock that is turned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.support.rows import inbox_table
from pipeline.config.settings import SECOND_MS, Settings
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append
from pipeline.storage.files import passing
from pipeline.testing.stages import Stages
from schemas import INBOX

_STEP_MS, _LONGEST_MS, _PAYLOAD = 500, 40 * SECOND_MS, 100


def work(root: str, topic: str, seconds: int, rate: int = 1_000) -> None:
    """Send and deliver messages of a topic for the last so many seconds, a batch of each stage for every half of one.

    Args:
        root: the warehouse, in which no stage has begun.
        topic: whose messages are sent, with delays of up to 40 s.
        seconds: how long.
        rate: messages a second.
    """
    random, stages, count = np.random.default_rng(20_261_129), Stages(root, Settings()), rate * _STEP_MS // SECOND_MS
    begin = wall_ms() - seconds * SECOND_MS
    with passing(root):
        for now in range(begin, begin + seconds * SECOND_MS, _STEP_MS):
            due = (now + random.integers(0, _LONGEST_MS, count)) * 1_000
            append(root, INBOX, inbox_table(random, pa.repeat(topic, count), now * 1_000, due, _PAYLOAD))
            stages.instant = now
            stages.work()

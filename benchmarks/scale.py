"""What a load asks of delayline, by formula: state, keys, files, batches, memory of the driver, and what breaks first.

`python -m benchmarks.scale --pending 10_000_000_000 --rate 1_000_000` prints it. The constants were measured
(docs/scale.md has the tables, and says with which commands), and a test compares the formulas with those tables.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.config.sizing import MOST_RATE, Place, choose, segment_for
from pipeline.config.settings import DAY_MS, SECOND_MS, LiveClock, Settings

POSITION_BYTES = 2.6
"""Of the state, where a segment has many positions; delays over a day (benchmarks.index)."""
CHUNK_BYTES, CHUNKS = 900, 1
"""Of the state for each key that has anything, beside its positions."""
FILE_ROWS = 500_000
"""Rows of a file of `messages` that maintenance has sorted."""
OVERLAP = 8
"""Files of `messages` that hold something of one segment, once maintenance has sorted them."""
INSTANT_S, CALL_S = 1.05, 0.005
"""An instant of all stages with few messages, and a call of the stateful function."""
LOAD_S, LOAD_FILE_S, LOAD_ROW_S = 0.033, 0.0012, 0.2e-6
"""A load of nothing; each file that it opens, and each position that it encodes."""

"""What a Python worker of Spark loads for the stages, loaded before they need it."""

from collections.abc import Iterator

import pyarrow as pa

from pipeline.worker import encode, release, unpack
from pipeline.worker.release import leave_out_modules

LOADED = (encode, release, unpack)
"""The modules with the functions that the stages hand to workers."""


def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as they are, for `mapInArrow`: who calls it has the modules of the stages by then."""
    leave_out_modules()
    yield from batches

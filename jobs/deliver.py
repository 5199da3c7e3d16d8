"""spark-submit main: all stages in one session."""

import sys

from jobs.main import run
from pipeline.config.stages import ALL_STAGES

if __name__ == "__main__":
    sys.exit(run(ALL_STAGES))

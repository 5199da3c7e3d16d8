"""spark-submit main: the schedule stage alone."""

import sys

from jobs.main import run

if __name__ == "__main__":
    sys.exit(run(["schedule"]))

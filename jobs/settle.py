"""spark-submit main: settle alone."""

import sys

from jobs.main import run

if __name__ == "__main__":
    sys.exit(run(["settle"]))

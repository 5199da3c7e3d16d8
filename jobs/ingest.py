"""spark-submit main: the ingest stage alone."""

import sys

from jobs.main import run

if __name__ == "__main__":
    sys.exit(run(["ingest"]))

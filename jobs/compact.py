"""spark-submit main: merge the small files of `messages`; to be run now and then, beside the stages or without them."""

import argparse
import sys
from collections.abc import Sequence

from jobs.main import tool_session
from pipeline.maintenance import compact
from pipeline.tables import Warehouse


def main(arguments: Sequence[str] | None = None) -> int:
    """Compact once."""
    parser = argparse.ArgumentParser(description="Merge the small files of the table messages.")
    parser.add_argument("--warehouse", required=True, help="folder of the tables")
    told, app = parser.parse_args(arguments), "delayline compact"
    spark = tool_session(app)
    try:
        done = compact(spark, Warehouse(told.warehouse.rstrip("/")))
    finally:
        spark.stop()
    sys.stdout.write(f"{done.removed} files became {done.added}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""spark-submit main: let a stage that is stopped go on from the tables, on a new checkpoint."""

import argparse
import sys
from collections.abc import Sequence

from jobs.main import add_warehouse, tool_session
from pipeline.errors import PipelineError
from pipeline.objectstore import check_store
from pipeline.rebuild import rebuild
from pipeline.run import STAGES, Options
from pipeline.settings import LiveClock
from pipeline.tables import Warehouse


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild one stage: 0 when it can be started again, 2 when it was refused."""
    parser = argparse.ArgumentParser(description="Rebuild a stage of delayline from the tables, and take over.")
    add_warehouse(parser, "folder of the tables")
    parser.add_argument("--stage", required=True, choices=STAGES, help="it must be stopped; for schedule ingest too")
    told = parser.parse_args(arguments)
    app = f"delayline rebuild {told.stage}"
    spark = tool_session(app, told.warehouse)
    try:
        check_store(spark, told.warehouse)
        origin = rebuild(spark, Warehouse(told.warehouse), told.stage, Options(LiveClock()))
    except PipelineError as error:
        sys.stderr.write(f"delayline: {error}\n")
        return 2
    finally:
        spark.stop()
    sys.stdout.write(f"stage {told.stage} goes on from version {origin.version}; start it again\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

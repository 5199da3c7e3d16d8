"""spark-submit main: let stages that are stopped go on from the tables, on new checkpoints."""

import argparse
import sys
from collections.abc import Sequence

from jobs.commands.rebuild import CHOICES, rebuilt, stages_of
from jobs.main import add_warehouse, tool_session
from jobs.progress import progress
from jobs.terminal import tell
from pipeline.config.errors import PipelineError
from pipeline.delta.warehouse import Warehouse


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild one stage or all: 0 when it can be started again, 2 when it was refused."""
    parser = argparse.ArgumentParser(description="Rebuild stages of delayline from the tables, and take over.")
    add_warehouse(parser, "folder of the tables")
    parser.add_argument("--stage", required=True, choices=CHOICES, help="it must be stopped; for schedule ingest too")
    about = "begin at the present time, also when the last run was ahead of it"
    parser.add_argument("--reset-clock", action="store_true", help=about)
    options = parser.parse_args(arguments)
    spark = tool_session(f"delayline rebuild {options.stage}", options.warehouse)
    try:
        warehouse = Warehouse(options.warehouse, spark)
        stages, how = stages_of(options.stage), {"reset_clock": options.reset_clock}
        with progress() as on_step:
            for line in rebuilt(warehouse, stages, **how, on_step=on_step):
                tell(line)
    except PipelineError as error:
        sys.stderr.write(f"delayline: {error}\n")
        return 2
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

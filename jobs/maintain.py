"""spark-submit main: one round of maintenance; to be run now and then, beside the stages or without them."""

import argparse
import sys
from collections.abc import Sequence

from jobs.commands.durations import BadText, duration_ms
from jobs.main import add_warehouse, tool_session
from jobs.progress import progress
from jobs.terminal import tell
from pipeline.config.errors import PipelineError
from pipeline.config.printed import print_logs, printable
from pipeline.config.settings import DAY_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.rounds import maintain
from pipeline.storage.storecheck import check_store
from schemas import TABLES

_ANY_SIZE = 1 << 62


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one round: 0 when it was done, 1 when a step of it failed (the others were done), 2 when it was refused."""
    parser = argparse.ArgumentParser(description="Merge files, delete what is settled and old, cut logs, vacuum.")
    add_warehouse(parser, "folder of the tables")
    about = "messages stay so long after they were due, and logs of what others read after they were written (7d)"
    parser.add_argument("--retain", type=_duration, default=7 * DAY_MS, metavar="DURATION", help=about)
    letters = "messages of dead-letter topics stay so long (30d)"
    parser.add_argument("--retain-dead-letters", type=_duration, default=30 * DAY_MS, metavar="DURATION", help=letters)
    options, app = parser.parse_args(arguments), "delayline maintain"
    print_logs()
    keep = {"retain_ms": options.retain, "retain_dead_letters_ms": options.retain_dead_letters}
    upkeep = Upkeep(**keep, retain_log_ms=options.retain, cluster_bytes=_ANY_SIZE)
    spark, failed = tool_session(app, options.warehouse), False
    try:
        check_store(spark, options.warehouse)
        every = [table.name for table in TABLES]
        with progress() as on_step:
            for done in maintain(Warehouse(options.warehouse, spark), upkeep, wall_ms(), every, on_step):
                tell(done)
                failed = failed or bool(done.failed)
    except PipelineError as error:
        sys.stderr.write(printable(f"delayline: {error}") + "\n")
        return 2
    finally:
        spark.stop()
    return int(failed)


def _duration(text: str) -> int:
    try:
        return duration_ms(text)
    except BadText as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())

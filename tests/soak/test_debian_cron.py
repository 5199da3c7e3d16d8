"""`delayline schedule preview` beside Debian's cron, which runs under a false clock over changes of clocks.

It needs Debian's packages `cron` and `faketime`, and to be root: cron gets a table of its own in a namespace of mounts,
and finds nothing of the machine's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from subprocess import DEVNULL, Popen
from zoneinfo import ZoneInfo

import pytest

from tests.support.invoked import invoke

CRON = which("cron", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CLOCK = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
pytestmark = pytest.mark.skipif(
    CRON is None or CLOCK is None or os.geteuid() != 0,
    reason="no cron with a false clock; Debian, as root: apt-get install cron faketime",
)

SPEED = 40
"""How fast the clock goes."""
LATE_S = 120
"""How late a job may begin by that clock. A busy machine takes a while for all of a minute."""
WATCHED_S = 4 * 3_600
MADE_UP_S = 30
"""After a gap cron waits ten seconds of its clock between jobs that it makes up for."""
ONCE = ("0 1 * * *", "30 1 * * *", "45 1 * * *", "0 2 * * *", "15 2 * * *", "30 2 * * *", "0 3 * * *", "30 3 * * *")
SPANS = ("0 1-4 * * *", "15 1,3 * * *", "20,40 2 * * *", "0 */2 * * *", "30 2 * * 0", "30 2 1 * *")
STARS = ("*/15 * * * *", "30 * * * *", "*/20 2 * * *", "* 2 * * *", "10-50/20 1-3 * * *")
CHANGES = {
    "a gap in Rome": ("Europe/Rome", "2026-03-29 00:30"),
    "a fold in Rome": ("Europe/Rome", "2026-10-25 00:30"),
    "a gap in New York": ("America/New_York", "2027-03-14 00:30"),
    "a fold in New York": ("America/New_York", "2026-11-01 00:30"),
    "nothing in Tokyo": ("Asia/Tokyo", "2026-03-29 00:30"),
}
PRIVATE = """
mount -t tmpfs none /run && mount -t tmpfs none /etc/cron.d && mount -t tmpfs none /var/spool || exit 1
[ ! -e /etc/crontab ] || mount --bind /dev/null /etc/crontab
mkdir -p /var/spool/cron/crontabs && install -m 600 "$1" /var/spool/cron/crontabs/root
exec env TZ="$2" LD_PRELOAD="$3" FAKETIME="@$4:00 x$5" "$6" -f
"""
"""Runs cron where it sees this table only, by a clock that begins at an instant."""


def by_cron(folder: Path, crons: Sequence[str]) -> dict[str, list[list[float]]]:
    """The instants at which cron ran each expression, s UTC, by change of clocks; each in a cron of its own."""
    begun, running = dict[str, float](), list[Popen[bytes]]()
    with ExitStack() as ending:
        for name, (zone, begin) in CHANGES.items():
            table = folder / name
            jobs = (f"{cron} date +\\%s.\\%N >> '{table} {number}'\n" for number, cron in enumerate(crons))
            table.write_text("".join(jobs))
            words = [str(table), zone, str(CLOCK), begin, str(SPEED), str(CRON)]
            command = ["/usr/bin/unshare", "-m", "sh", "-c", PRIVATE, "sh", *words]
            begun[name] = time.time()
            running.append(ending.enter_context(Popen(command, stderr=DEVNULL)))  # noqa: S603 - all words are the test's own
            ending.callback(running[-1].kill)
        time.sleep(WATCHED_S / SPEED + 2)
        assert all(each.poll() is None for each in running)
    ran = {}
    for name, began in begun.items():
        files = [folder / f"{name} {number}" for number in range(len(crons))]
        seen = [list(map(float, each.read_text().split())) if each.exists() else [] for each in files]
        ran[name] = [[start_of(*CHANGES[name]) + (at - began) * SPEED for at in each] for each in seen]
    return ran


def start_of(zone: str, begin: str) -> float:
    """When the clock of a cron begins, s UTC."""
    return datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(zone)).timestamp()


def foretold(cron: str, zone: str, begin: str) -> list[float]:
    """What `preview` says of the hours that cron is watched for, s UTC."""
    after = datetime.fromtimestamp(start_of(zone, begin), UTC).isoformat()
    result = invoke(["schedule", "preview", "--cron", cron, "--zone", zone, "--after", after, "-n", "400", "--json"])
    assert result.exit_code == 0, result.output
    found = (datetime.fromisoformat(json.loads(line)["occurrence"]) for line in result.output.splitlines())
    return [each.timestamp() for each in found if each.timestamp() < start_of(zone, begin) + WATCHED_S]


def runs(seen: list[float]) -> list[float]:
    """When cron ran, in seconds; what it made up for after a gap, one soon after the other, is one."""
    return [at for before, at in zip([0.0, *seen], seen, strict=False) if at - before > MADE_UP_S]


def test_what_is_foretold_is_when_debians_cron_runs(tmp_path: Path) -> None:
    """Each expression, over each change of clocks: as often, and in the same minutes."""
    crons = (*ONCE, *SPANS, *STARS)
    for name, ran in by_cron(tmp_path, crons).items():
        zone, begin = CHANGES[name]
        for cron, seen in zip(crons, ran, strict=True):
            wanted = foretold(cron, zone, begin)
            found = [at for at in runs(seen) if at < start_of(zone, begin) + WATCHED_S]
            assert len(found) == len(wanted), (name, cron, found, wanted)
            assert all(0 <= at - each < LATE_S for at, each in zip(found, wanted, strict=True)), (
                name,
                cron,
                found,
                wanted,
            )

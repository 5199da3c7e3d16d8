"""What a container leaves, as Linux says it in both forms, from made-up folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.commands import sizes
from jobs.commands.sizes import lines
from pipeline.config.cgroups import Limits, limits
from pipeline.config.options import Options
from pipeline.config.profiles import Profile
from pipeline.config.session import Machine
from pipeline.config.settings import LiveClock, Settings
from pipeline.config.sizing import SizingInputs, choose, cores_here, heap_for, is_limited, memory_here, segment_for

GB = 1 << 30
ENDLESS = "9223372036854771712"


def machine(root: Path, groups: str, **files: str) -> Path:
    """A root with the groups of a process, and files of the system, whose names have `__` for a slash."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups, encoding="utf-8")
    for name, text in files.items():
        path = root.joinpath("sys", "fs", "cgroup", *name.replace("DOT", ".").split("__"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        pytest.param(
            "0::/\n", {"memoryDOTmax": str(2 * GB), "cpuDOTmax": "100000 100000"}, Limits(2 * GB, 1), id="pod"
        ),
        pytest.param("0::/\n", {"memoryDOTmax": "max", "cpuDOTmax": "max 100000"}, Limits(), id="no limit"),
        pytest.param("0::/\n", {"cpuDOTmax": "150000 100000"}, Limits(None, 2), id="a part of a core is one"),
        pytest.param("0::/\n", {"cpuDOTmax": "1000 100000"}, Limits(None, 1), id="never none"),
        pytest.param(
            "0::/machine.slice/job.service\n",
            {
                "machine.slice__memoryDOTmax": str(3 * GB),
                "machine.slice__job.service__memoryDOTmax": str(8 * GB),
                "machine.slice__job.service__cpuDOTmax": "400000 100000",
                "other.slice__memoryDOTmax": "1",
            },
            Limits(3 * GB, 4),
            id="the smallest on the way down",
        ),
        pytest.param("0::/../../host\n", {"memoryDOTmax": str(GB)}, Limits(GB), id="a way that only the host knows"),
        pytest.param(
            "4:memory:/docker/12ee\n1:cpu,cpuacct:/docker/12ee\n0::/\n",
            {
                "memory__memoryDOTlimit_in_bytes": str(2 * GB),
                "cpu__cpuDOTcfs_quota_us": "250000",
                "cpu__cpuDOTcfs_period_us": "100000",
            },
            Limits(2 * GB, 3),
            id="version 1 in a container",
        ),
        pytest.param(
            "4:memory:/user/a\n1:cpu:/user/a\n",
            {
                "memory__memoryDOTlimit_in_bytes": ENDLESS,
                "memory__user__a__memoryDOTlimit_in_bytes": str(GB),
                "cpu__cpuDOTcfs_quota_us": "-1",
                "cpu__cpuDOTcfs_period_us": "100000",
            },
            Limits(GB),
            id="version 1 on a host",
        ),
        pytest.param("4:memory:/\n1:cpu:/\n", {"memory__memoryDOTlimit_in_bytes": ENDLESS}, Limits(), id="free"),
        pytest.param("", {}, Limits(), id="no groups"),
    ],
)
def test_what_is_left_is_read_in_both_forms(tmp_path: Path, groups: str, files: dict[str, str], left: Limits) -> None:
    """A limit holds for all groups below; what is not there says nothing."""
    assert limits(machine(tmp_path, groups, **files)) == left


def test_a_machine_that_has_no_control_groups_leaves_everything(tmp_path: Path) -> None:
    """Another system, or a kernel without them."""
    assert limits(tmp_path) == Limits()
    assert not is_limited(Limits())


def test_a_limit_counts_where_the_machine_has_more() -> None:
    """Else the machine does: a container may be allowed more than there is."""
    left = Limits(GB // 2, 1)
    assert (memory_here(left), cores_here(left), is_limited(left)) == (GB // 2, 1, True)
    more = Limits(1 << 50, 100_000)
    assert (memory_here(more), cores_here(more)) == (memory_here(Limits()), cores_here(Limits()))
    assert not is_limited(more)


@pytest.mark.parametrize(
    ("memory", "heap"), [(64 * GB, "2g"), (4 * GB, "2g"), (2 * GB, "1024m"), (3 * GB, "1536m"), (GB // 2, "512m")]
)
def test_half_of_a_small_container_is_left_to_python(memory: int, heap: str) -> None:
    """The system kills a container that takes more; Spark does not start with less than half a gigabyte."""
    assert heap_for(memory) == heap


@pytest.mark.parametrize(
    ("memory", "heap", "is_short"),
    [
        (GB // 2, "512m", True),
        (GB, "512m", True),
        (1_199 << 20, "599m", True),
        (1_200 << 20, "600m", False),
        (2 * GB, "1024m", False),
        (GB, "450m", False),
        (64 * GB, "2g", False),
    ],
)
def test_a_start_says_when_the_heap_leaves_too_little_to_python(
    monkeypatch: pytest.MonkeyPatch, memory: int, heap: str, *, is_short: bool
) -> None:
    """The system kills such a job in the middle of a batch, and no log says why. A heap that is stated is a choice."""
    said, conf = list[str](), SimpleNamespace(set=lambda *_: None, get=lambda *_: heap)
    here = SizingInputs(1_000, segment_for(1_000), 1, memory, is_limited=True)
    monkeypatch.setattr(sizes, "place", lambda _: here)
    monkeypatch.setattr(sizes, "sync_files", lambda **_: None)
    warehouse: Any = SimpleNamespace(spark=SimpleNamespace(conf=conf))
    sizes.sized(warehouse, Profile(Machine(), Options(LiveClock())), said.append)
    short = [each for each in said if each.startswith("Memory is short")]
    assert len(short) == is_short
    assert all(f"session.memory = {heap}" in each for each in short)


def test_what_is_chosen_says_that_it_is_for_a_container() -> None:
    """Who sees 2 GB on a machine of 64 knows why, and a driver that holds 4 million rows would be killed."""
    here = SizingInputs(1_000, segment_for(1_000), 1, 2 * GB, is_limited=True)
    choices = choose(here, Settings(), LiveClock(), set())
    head, *others = lines(here, choices)
    assert head.endswith("1 cores, 2.1 GB (what the container leaves):")
    assert "  settings.driver_rows = 268_000: small messages take 0.3 GB of the driver's 2.1 GB" in others

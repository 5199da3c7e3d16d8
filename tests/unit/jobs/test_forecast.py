"""What `delayline forecast` prints, for people and for scripts, and what it reads and draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from jobs.commands.campaign import campaign
from jobs.commands.forecast import as_json, report
from pipeline.client.insight.departures import NOTHING_DUE, DueLoad, Outage
from pipeline.client.insight.forecast import Forecast, Horizon, forecast_of
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.subscriptions.policies import Policies
from tests.support.client import new_warehouse
from tests.support.invoked import invoke

T0, MINUTE, HOUR = 1_700_002_800_000, 60_000, 3_600_000
"""A full hour, ms UTC: 2023-11-14T23:00."""


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse with a subscription."""
    new_warehouse(str(tmp_path / "warehouse"))
    subscribe(str(tmp_path / "warehouse"), Subscription("t", "s"))
    return str(tmp_path / "warehouse")


def run(root: str, *words: str) -> Result:
    """Run the command in this process."""
    return invoke(["forecast", "--warehouse", root, *words])


def foreseen_of(due: Sequence[int], hours: int = 24, *, outage: bool = False, **policies: int | bool) -> Forecast:
    """A forecast of one subscription, with a message at each of some seconds."""
    horizon, times = Horizon(T0, T0 + hours * HOUR, 5_000), T0 + np.array(due, np.int64) * 1_000
    load = DueLoad.of(times, np.ones(len(times), np.int64)) if len(due) else NOTHING_DUE
    events = [Outage(T0, T0 + 10 * MINUTE)] if outage else []
    own = Policies(**policies)  # type: ignore[arg-type] # by their names
    return Forecast(horizon, (forecast_of(("t", "s"), load, own, horizon, events),), 7)


def test_people_are_told_the_worst_minute_the_end_and_what_is_late_and_then_minutes() -> None:
    """What is in the inbox is not in it, and is said."""
    assert list(report(foreseen_of([30, 90, 700], outage=True))) == [
        "t/s  3 more due until 2023-11-15T23:00",
        "  most are overdue at the end of 2023-11-14T23:01: 2; none is at 2023-11-14T23:10:00.000Z",
        "  2 are later than 5s, the first at 2023-11-14T23:00:35.000Z; the latest that comes is 9m 30s late",
        "",
        "FROM (UTC)        DUE  DELIVERED  OVERDUE  LATE",
        "2023-11-14T23:00  1    0          1        -",
        "2023-11-14T23:01  1    0          2        -",
        "2023-11-14T23:02  0    0          2        -",
        "2023-11-14T23:03  0    0          2        -",
        "2023-11-14T23:04  0    0          2        -",
        "2023-11-14T23:05  0    0          2        -",
        "2023-11-14T23:06  0    0          2        -",
        "2023-11-14T23:07  0    0          2        -",
        "2023-11-14T23:08  0    0          2        -",
        "2023-11-14T23:09  0    0          2        -",
        "2023-11-14T23:10  0    2          0        9m 30s",
        "2023-11-14T23:11  1    1          0        0 ms",
        "7 more in the inbox, not yet taken by ingest; they are not in the forecast",
    ]


def test_what_is_set_now_and_what_waits_now_is_said() -> None:
    """And what expires; of a pause that nobody ends how many are overdue at the end."""
    lines = list(report(foreseen_of([-60, -60, 30], hours=1, paused=True)))
    assert lines[0] == "t/s  2 overdue now, 1 more due until 2023-11-15T00:00, paused"
    assert lines[1] == "  most are overdue at the end of 2023-11-14T23:00: 3; 3 still are at the end"
    assert (
        next(report(foreseen_of([], max_rate=1_000)))
        == "t/s  0 more due until 2023-11-15T23:00, 1,000 a second at most"
    )
    lines = list(report(foreseen_of([0] * 10, max_rate=1, ttl_ms=3_000)))
    assert "  7 expire" in lines
    assert "FROM (UTC)        DUE  DELIVERED  EXPIRED  OVERDUE  LATE" in lines
    assert list(report(Forecast(Horizon(T0, T0 + HOUR, 0), ()))) == ["No active subscription."]


@pytest.mark.parametrize(("hours", "lines"), [(24, 24), (23, 23), (120, 21), (100 * 24, 101)])
def test_a_table_has_few_lines_and_leaves_out_where_nothing_happens(hours: int, lines: int) -> None:
    """Spans are as short as the number of lines allows, but a day at most; all that is due is in them."""
    found = foreseen_of(range(0, hours * 3_600, 1_800), hours)
    rows = [row for row in report(found) if row[:2] == "20"]
    assert len(rows) == lines
    assert sum(int(row.split()[1].replace(",", "")) for row in rows) == hours * 2
    assert len([row for row in report(found, every_minute=True) if row[:2] == "20"]) == hours * 2


def test_scripts_get_each_minute_and_then_the_answers() -> None:
    """A line each; a minute in which nothing is delivered has no lateness."""
    first, *_, last, answers = map(json.loads, as_json(foreseen_of([30, 90, 700], outage=True)))
    named = {"topic": "t", "subscription": "s"}
    due = {"due_count": 1, "delivered": 0, "expired": 0, "overdue_at_end": 1, "late_ms": None}
    assert first == {**named, "minute": "2023-11-14T23:00:00.000Z", **due}
    assert (last["minute"], last["late_ms"]) == ("2023-11-14T23:11:00.000Z", 0)
    assert answers == {
        **named,
        "paused": False,
        "closed_until": None,
        "overdue": 0,
        "due_count": 3,
        "delivered": 3,
        "expired": 0,
        "overdue_at_end": 0,
        "late_ms": 570_000,
        "worst_minute": "2023-11-14T23:01:00.000Z",
        "gone_at": "2023-11-14T23:10:00.000Z",
        "missed": 2,
        "missed_at": "2023-11-14T23:00:35.000Z",
    }


def test_the_command_tells_what_if(root: str, tmp_path: Path) -> None:
    """A campaign of a hundred in ten minutes, with a rate, a pause and an outage."""
    file = tmp_path / "campaign.csv"
    soon = "2020-01-01T00:00:00Z"
    file.write_text(f"due_time,count,topic\n{soon},60,t\n{soon},40,\n")
    words = ("--add", str(file), "--topic", "t", "--max-rate", "1", "--hours", "1", "--json")
    minutes = [json.loads(line) for line in run(root, *words).stdout.splitlines()]
    assert minutes[-1]["overdue"] == minutes[-1]["delivered"] == 100
    assert minutes[-1]["gone_at"] is not None
    held = json.loads(run(root, *words, "--pause", "2h", "--group-by", "topic").stdout.splitlines()[-1])
    assert (held["subscription"], held["delivered"], held["overdue_at_end"]) == (None, 0, 100)
    away = json.loads(run(root, *words, "--outage", "2h", "--group-by", "minute").stdout.splitlines()[-1])
    assert (away["topic"], away["delivered"], away["overdue_at_end"], away["missed"]) == (None, 0, 100, 100)
    assert run(root, "--add", str(file), "--topic", "t").stdout.startswith("t/s  100 overdue now, 0 more due until ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group-by", "key"), "subscription, topic or minute"),
        (("--hours", "1", "--until", "in 2h"), "exclude each other"),
        (("--at", "in 1h"), "say one of them"),
        (("--until", "2020-01-01"), "until"),
        (("--picture", "p.jpg"), ".png or .svg"),
        (("--max-rate", "0"), "--max-rate"),
        (("--add", "nowhere.csv"), "nowhere.csv"),
        (("--topic", "u"), "u"),
    ],
)
def test_what_cannot_be_told_is_one_line(root: str, words: tuple[str, ...], said: str) -> None:
    """It names the option, or the value, and what is allowed."""
    result = run(root, *words)
    assert result.exit_code != 0
    assert said in result.output


def test_a_campaign_is_read_from_each_kind_of_file(tmp_path: Path) -> None:
    """Times as ISO texts, as ms and as timestamps; a row counts once, and is for the topic that is named, else."""
    expected = {"t": {T0: 3, T0 + 1: 1}}
    hour = "2023-11-14T23:00:00"
    (tmp_path / "a.csv").write_text(f"due_time,count\n{hour}Z,2\n{T0},1\n{hour}.001+00:00,1\n")
    rows = [{"due_time": f"{hour}Z", "count": 3, "topic": "t"}, {"due_time": f"{hour}.001Z", "count": 1}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    times = pa.array([T0 * 1_000] * 3 + [T0 * 1_000 + 1], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"due_time": times}), tmp_path / "a.parquet")
    for kind in ("csv", "jsonl", "parquet"):
        assert campaign(tmp_path / f"a.{kind}", "t") == expected, kind


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("a.csv", "when\n1\n", "add"),
        ("a.txt", "due_time\n1\n", "add"),
        ("a.jsonl", "{", "add"),
        ("a.csv", "due_time\nsoon\n", "due_time"),
        ("a.csv", "due_time,count\n2023-11-14,0\n", "count"),
        ("a.csv", "due_time,count\n2023-11-14,1.5\n", "count"),
        ("a.jsonl", '{"due_time": null}', "due_time"),
        ("a.csv", "due_time,topic\n2023-11-14,\n", "topic"),
    ],
)
def test_a_campaign_that_cannot_be_read_is_refused_by_its_field(
    tmp_path: Path, name: str, text: str, field: str
) -> None:
    """With the value, and what is allowed."""
    (tmp_path / name).write_text(text)
    with pytest.raises(BadValue) as refused:
        campaign(tmp_path / name, None if field == "topic" else "t")
    assert refused.value.field == field


def test_a_picture_is_drawn(root: str, tmp_path: Path) -> None:
    """As its name says."""
    pytest.importorskip("matplotlib", reason="a picture needs the extra demo")
    for name, begins in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        assert run(root, "--picture", str(tmp_path / name), "--hours", "1").exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(begins)

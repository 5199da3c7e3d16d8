"""The alerts for Prometheus: each names what the job exports, has a row to look up, and fires when it should."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="watching needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the listener is Spark's")

from tests.support.modules import ROOT
from tests.support.operations import PAGE
from tests.support.promql import labels_of, needs_promtool, promtool, refused_by_promtool, series_of
from tests.support.scraped import exported

yaml: Any = pytest.importorskip("yaml", reason="the rules are YAML, which requirements/all.lock reads")

FOLDER = ROOT / "conf" / "prometheus"
RULES = FOLDER / "alerts.yml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
OF_PROMETHEUS: dict[str, set[str]] = {"up": set()}
ADDED = {"job", "instance"}
"""Labels that Prometheus adds to each series."""
LIVE, STANDS, NEVER = "0+60x180", "0x180", "_x180"
"""A clock that goes, in seconds by the minute; a figure that stays 0; one that is not there."""
FAST = {f'delayline_lateness_seconds_bucket{{le="{le}"}}': "0+600x180" for le in ("0.5", "10.0", "300.0", "+Inf")}
SLOW = {
    f'delayline_lateness_seconds_bucket{{le="{le}"}}': values
    for le, values in (("0.5", STANDS), ("10.0", "0+600x180"), ("300.0", "0+600x180"), ("+Inf", "0+600x180"))
}
OF = 'topic="orders",subscription="mail"'
SLOW_FOR_ONE = {
    f'delayline_subscription_lateness_seconds_bucket{{{OF},le="{le}"}}': values
    for le, values in (("10.0", STANDS), ("300.0", "0+60x180"), ("+Inf", "0+60x180"))
}
QUIET: dict[str, str] = {
    "up": "1x180",
    'delayline_up{stage="ingest"}': "1x180",
    'delayline_up{stage="dispatch"}': "1x180",
    'delayline_instant_seconds{stage="ingest"}': LIVE,
    'delayline_instant_seconds{stage="schedule"}': LIVE,
    'delayline_instant_seconds{stage="settle"}': STANDS,
    'delayline_behind_seconds{stage="ingest"}': "0.2x180",
    "delayline_counted_seconds": LIVE,
    "delayline_next_due_seconds": "30+60x180",
    "delayline_held": STANDS,
    "delayline_expiring": STANDS,
    'delayline_source_behind{stage="source-a"}': "5x180",
    'delayline_rows_in_total{stage="source-a"}': "0+60x180",
    f"delayline_sink_late_seconds{{{OF}}}": "0.5x180",
    f"delayline_outstanding{{{OF}}}": "4000x180",
    'delayline_rows_dropped_by_watermark_total{stage="schedule"}': STANDS,
    "delayline_events_refused_total": STANDS,
    f'delayline_left_out_total{{{OF},reason="suppressed"}}': "0+1x180",
    f"delayline_dead_letters_total{{{OF}}}": STANDS,
    **FAST,
}
"""A job that is well: settle has not moved for long, a guard suppresses messages, a source always has more to read."""
FAULTS: dict[str, dict[str, str]] = {
    "DelaylineAway": {"up": STANDS},
    "DelaylineStageDown": {'delayline_up{stage="dispatch"}': "1x60 0x120"},
    "DelaylineStageStandsStill": {'delayline_instant_seconds{stage="schedule"}': "0+60x60 3600x120"},
    "DelaylineOverdue": {"delayline_next_due_seconds": "30+60x60 3600x120"},
    "DelaylineBehind": {'delayline_behind_seconds{stage="ingest"}': "0.2x60 45x120"},
    "DelaylineLate": SLOW,
    "DelaylineSubscriptionLate": SLOW_FOR_ONE,
    "DelaylineExpiring": {"delayline_expiring": "0x60 12x120"},
    "DelaylineSourceStandsStill": {'delayline_rows_in_total{stage="source-a"}': "0+60x60 3600x120"},
    "DelaylineSinkLate": {f"delayline_sink_late_seconds{{{OF}}}": "0.5x60 0+60x120"},
    "DelaylineOutstanding": {f"delayline_outstanding{{{OF}}}": "4000+20000x180"},
    "DelaylineRowsLost": {'delayline_rows_dropped_by_watermark_total{stage="schedule"}': "0x60 3x120"},
    "DelaylineRejected": {'delayline_rejected_total{reason="topic_missing"}': "_x150 2x30"},
    "DelaylineRefused": {"delayline_events_refused_total": "0x150 2x30"},
    "DelaylineLeftOut": {f'delayline_left_out_total{{{OF},reason="expired"}}': "_x150 7x30"},
    "DelaylineDeadLetters": {f"delayline_dead_letters_total{{{OF}}}": "0x150 1x30"},
    "DelaylineNotCounted": {"delayline_counted_seconds": "0+60x10 600x170"},
}
"""What goes wrong, by the alert that it is told by alone."""


def with_job(series: str) -> str:
    """A series with the labels that Prometheus adds."""
    name, _, labels = series.rstrip("}").partition("{")
    both = ['job="delayline"', 'instance="host:9464"', *filter(None, [labels])]
    return f"{name}{{{','.join(both)}}}"


def scenario(name: str, series: Mapping[str, str], wanted: set[str], *at: str) -> dict[str, Any]:
    """What the checker plays: with these series, these alerts and no others fire at each time."""
    names = [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(wanted)]
    asked = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "exp_samples": names}
    inputs = [{"series": with_job(each), "values": values} for each, values in series.items()]
    checks = [{**asked, "eval_time": each} for each in at or ("3h",)]
    return {"name": name, "interval": "1m", "input_series": inputs, "promql_expr_test": checks}


def differences(folder: Path, scenarios: Sequence[dict[str, Any]]) -> str:
    """What the checker says when other alerts fire than those that should; empty: nothing."""
    path = folder / "test.json"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": scenarios}))
    return promtool("test", "rules", str(path))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_so_and_where_to_look(name: str) -> None:
    """Somebody reads it at night."""
    rule = ALERTS[name]
    assert re.fullmatch(r"Delayline[A-Z]\w+", name)
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"].endswith(f"docs/operations.md, row {name}")
    assert "://" not in json.dumps(rule)
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "0m"))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_names_what_the_job_exports(name: str) -> None:
    """A metric or a label that was renamed leaves an alert silent, for ever."""
    expr, known = ALERTS[name]["expr"], exported() | OF_PROMETHEUS
    named = series_of(expr)
    assert named
    assert named <= known.keys()
    labels = ADDED.union(*(known[each] for each in named))
    assert labels_of(expr) <= labels
    said = "".join(ALERTS[name]["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels


def test_the_page_has_a_row_for_each_alert_and_no_other() -> None:
    """In the order of the file."""
    _, _, part = PAGE.read_text(encoding="utf-8").partition("## What an alert means")
    table = part.partition("\n## ")[0]
    assert re.findall(r"^\| `(Delayline\w+)` \|", table, re.MULTILINE) == list(ALERTS)


def test_the_example_of_prometheus_reads_the_rules_and_asks_where_a_profile_serves() -> None:
    """It is what somebody starts first."""
    example = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    assert [(FOLDER / name).exists() for name in example["rule_files"]] == [True]
    (scrape,) = example["scrape_configs"]
    assert re.fullmatch("delayline.*", scrape["job_name"])
    assert scrape["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]
    assert "metrics_port = 9464" in (ROOT / "conf/production.toml").read_text(encoding="utf-8")


@needs_promtool
def test_the_checker_of_prometheus_takes_rules_and_example(tmp_path: Path) -> None:
    """It is the one that somebody's deployment runs."""
    assert promtool("check", "rules", str(RULES)) == ""
    assert promtool("check", "config", str(FOLDER / "prometheus.yml")) == ""
    assert refused_by_promtool(tmp_path, ["delayline_up =="]) != ""


@needs_promtool
def test_nothing_fires_of_a_job_that_is_well(tmp_path: Path) -> None:
    """Whoever is woken for nothing switches alerts off. Some figures are not there, or not yet."""
    by_chance = "counted|next_due|held|expiring|sink_late|source_behind"
    unknown = {name: NEVER for name in QUIET if re.search(by_chance, name)}
    held = FAULTS["DelaylineOverdue"] | {"delayline_held": "9x180"}
    found = [
        scenario("well", QUIET, set(), "5m", "1h", "3h"),
        scenario("nothing is counted, and there is no sink", QUIET | unknown, set()),
        scenario("what waits is held by a policy", QUIET | held, set()),
    ]
    assert differences(tmp_path, found) == ""


@needs_promtool
def test_each_fault_fires_the_alert_that_is_about_it_and_no_other(tmp_path: Path) -> None:
    """At night one line has to say what is wrong."""
    assert FAULTS.keys() == ALERTS.keys()
    found = [scenario(name, QUIET | fault, {name}) for name, fault in FAULTS.items()]
    found.append(scenario("a job that Prometheus does not know", {"something_else": "1x180"}, {"DelaylineAway"}))
    assert differences(tmp_path, found) == ""
    assert "FAILED" in differences(tmp_path, [scenario("planted", QUIET, {"DelaylineAway"})])

"""The dashboard for Grafana: it can be imported, and each of its expressions names what the job exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="watching needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the listener is Spark's")

from tests.support.modules import ROOT
from tests.support.promql import labels_of, needs_promtool, refused_by_promtool, series_of, without_variables
from tests.support.scraped import exported

BOARD: dict[str, Any] = json.loads((ROOT / "conf/grafana/delayline.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
CORE = {"alertlist", "bargauge", "barchart", "gauge", "heatmap", "piechart", "stat", "state-timeline", "table", "text"}
CORE |= {"timeseries"}
"""Panels that each Grafana has."""
UNITS = {"short", "none", "s", "ops", "cps", "bytes", "dateTimeFromNow"}
"""Those of Grafana's units that are used; a misspelled one is shown as a word behind each figure."""
OF_PROMETHEUS = {"ALERTS": {"alertname", "alertstate", "job"}}
ADDED = {"job", "instance"}
"""Labels that Prometheus adds to each series."""


def targets() -> Iterator[dict[str, Any]]:
    """What panels ask for."""
    for panel in PANELS:
        yield from panel["targets"]


EXPRESSIONS = [without_variables(target["expr"]) for target in targets()]


def crosses(one: dict[str, int], other: dict[str, int], *spans: tuple[str, str]) -> bool:
    """Whether two places have something in common in each direction; a span names where it begins, and its length."""
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in spans)


def test_grafana_finds_what_it_needs() -> None:
    """An import that lacks one of them fails, or shows an empty page."""
    assert (BOARD["title"], BOARD["uid"]) == ("delayline", "delayline")
    assert BOARD["schemaVersion"] >= 36
    assert "id" not in BOARD, "a number of somebody's own Grafana"
    assert {panel["type"] for panel in PANELS} <= CORE
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS} <= UNITS
    assert [
        panel["title"] for panel in PANELS if not (panel["targets"] and panel["title"] and panel["description"])
    ] == []


def test_ids_are_given_once() -> None:
    """Grafana shows one of two panels with one id, and one of two targets with one letter."""
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    letters = [[target["refId"] for target in panel["targets"]] for panel in PANELS]
    assert [each for each in letters if len(set(each)) != len(each)] == []


def test_no_panel_lies_on_another_one() -> None:
    """Grafana would push one of them down, and the rows would lose their order."""
    places = [(panel["title"], panel["gridPos"]) for panel in BOARD["panels"]]
    assert [title for title, at in places if at["x"] < 0 or at["x"] + at["w"] > 24] == []
    over = [(one, other) for (one, a), (other, b) in combinations(places, 2) if crosses(a, b, ("x", "w"), ("y", "h"))]
    assert over == []


def test_data_come_from_the_source_that_is_chosen() -> None:
    """The id of somebody's own Prometheus would be unknown elsewhere."""
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    asking = [*PANELS, *targets(), *(each for each in variables.values() if each["type"] == "query")]
    assert {json.dumps(each["datasource"], sort_keys=True) for each in asking} == {
        '{"type": "prometheus", "uid": "${datasource}"}'
    }


def test_a_job_and_an_instance_are_chosen_for_every_panel() -> None:
    """Else the figures of two warehouses would be mixed."""
    queries = {each["name"]: each["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"}
    assert queries.keys() == {"job", "instance"}
    for query in queries.values():
        inner = query["query"].removeprefix("label_values(").partition(",")[0].partition("{")[0]
        assert inner in exported()
    for target in targets():
        named = series_of(without_variables(target["expr"]))
        chosen = 'job=~"$job"' if named <= OF_PROMETHEUS.keys() else 'job=~"$job", instance=~"$instance"'
        assert target["expr"].count(chosen) >= len(named) > 0, target["expr"]


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_expression_names_what_the_job_exports(expr: str) -> None:
    """A metric or a label that was renamed leaves a panel empty, and nobody is told."""
    known = exported() | OF_PROMETHEUS
    named = series_of(expr)
    assert named <= known.keys()
    assert labels_of(expr) <= ADDED.union(*(known[name] for name in named))


def test_every_metric_that_the_job_exports_is_shown() -> None:
    """Somebody who adds one adds a panel."""
    shown = {name for expr in EXPRESSIONS for name in series_of(expr)}
    parts = ("_created", "_sum", "_count")
    assert {name for name in exported() if not name.endswith(parts)} - shown == set()


@needs_promtool
def test_the_checker_of_prometheus_takes_every_expression(tmp_path: Path) -> None:
    """It knows the language, and the reader of these tests knows names only."""
    assert refused_by_promtool(tmp_path, EXPRESSIONS) == ""
    assert "parse error" in refused_by_promtool(tmp_path, ["sum by (job (delayline_up)"])


@pytest.mark.parametrize(
    ("expr", "named", "labels"),
    [
        ("rate(a_total[5m])", {"a_total"}, set()),
        ('sum by (job, le) (rate(a_bucket{stage=~"x|by (y)", p!="q"}[1h]))', {"a_bucket"}, {"job", "le", "stage", "p"}),
        ("sum(rate(a[5m])) without (b) > 1e6", {"a"}, {"b"}),
        ("a unless on (job) increase(b[10m]) > bool 0", {"a", "b"}, {"job"}),
        ('time() - a offset 1h * 1000 or absent(b{c="{d}"})', {"a", "b"}, {"c"}),
        ("a / ignoring(b) group_left(c) d:e", {"a", "d:e"}, {"b", "c"}),
        ("histogram_quantile(0.99, a_bucket) and NaN", {"a_bucket"}, set()),
    ],
)
def test_names_are_told_from_functions_words_and_texts(expr: str, named: set[str], labels: set[str]) -> None:
    """What it overlooks, no test would find."""
    assert (series_of(expr), labels_of(expr)) == (named, labels)

"""The tables of policies in the documents are what the code says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import typer
from typer.testing import CliRunner

from jobs.commands.options import with_policies
from jobs.commands.policies import stated
from jobs.groups import App
from jobs.terminal import echo
from pipeline.config.errors import BadValue
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.policytable import Option, PolicyTable, Shown, Within
from pipeline.subscriptions.topicpolicies import TopicPolicies
from tests.support import policies_page
from tests.support.policies_page import PAGE, WORDS, page, words
from tests.support.settings_page import meanings


@dataclass(frozen=True)
class Pretended(PolicyTable):
    """Policies that there are not.

    Attributes:
        most_hops: a message comes so often at most.
        calm_ms: so long nothing comes. None: no time.
    """

    most_hops: Annotated[int, Within(1, 9), Option("Hops of a message.", "N", "3"), Shown("hops: {}")] = 3
    calm_ms: Annotated[int | None, Within(5, 50), Option("How long it is calm"), Shown("calm for {}")] = None


def test_the_pages_have_the_policies_of_the_code() -> None:
    """Whoever changes a policy runs `make docs`, so no reader meets yesterday's ranges."""
    for path, written in ((PAGE, page), (WORDS, words)):
        text = path.read_text(encoding="utf-8")
        assert text == written(text), "run: make docs"


@pytest.mark.parametrize("table", [Policies, TopicPolicies])
def test_every_policy_has_a_meaning(table: type[PolicyTable]) -> None:
    """A name without a sentence is no reference, and a sentence without a policy none either."""
    assert list(meanings(table)) == list(table.rows)


def test_checks_options_and_pages_follow_from_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy is added in one place."""
    app = App()

    @app.command()
    @with_policies(Pretended.rows.values())
    def set_some(**values: object) -> None:
        echo(str(Pretended(**stated(values)).as_map()))

    assert typer.main.get_command(app).name == "set-some"
    printed = CliRunner().invoke(app, ["--most-hops", "4", "--calm", "50ms"]).output
    assert printed == "{'most_hops': '4', 'calm_ms': '50'}\n"
    with pytest.raises(BadValue, match=r"calm_ms = 51, allowed: a whole number in 5\.\.50"):
        Pretended.of_map({"calm_ms": "51"})
    monkeypatch.setattr(policies_page, "TABLES", {"topic": Pretended})
    assert "| `calm_ms` | `--calm` | 5 to 50 |  | so long nothing comes. Without it no time |" in page(PAGE.read_text())
    assert "| `--most-hops` | number | hops of a message |" in words(WORDS.read_text())

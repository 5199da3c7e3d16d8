"""What `delayline clone` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.subscriptions.policies import Policies
from tests.support.client import new_warehouse
from tests.support.invoked import invoke


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse with a subscription that has a sink."""
    new_warehouse(str(tmp_path / "w"))
    policies = Policies(sink="kafka://localhost:9092/due")
    subscribe(str(tmp_path / "w"), Subscription("t", "s", policies=policies))
    return str(tmp_path / "w")


def test_a_clone_says_where_it_is_what_it_lacks_and_how_it_goes_on(root: str) -> None:
    """All paths are whole, so that they can be pasted anywhere."""
    done = invoke(["clone", "--warehouse", root, "--target", f"{root}2"])
    first, files, sink, run, replay = done.stdout.splitlines()
    assert first.startswith(f"{root}2 has what waited in {root} at ")
    assert files == "  1 data files are shared by both, 0 were copied"
    assert sink == "  t/s publishes nothing from there: its sink kafka://localhost:9092/due was taken off"
    assert run == f"It goes on with: delayline run --warehouse {root}2"
    assert f"delayline replay --warehouse {root}2 --from " in replay
    assert done.stderr == ""


def test_a_clone_says_it_to_scripts_and_keeps_sinks_for_a_move(root: str) -> None:
    """The words are those of the page."""
    done = json.loads(invoke(["clone", "--warehouse", root, "--target", f"{root}2", "--keep-sinks", "--json"]).stdout)
    assert (done["warehouse"], done["target"], done["as_of"], done["sinks"]) == (root, f"{root}2", None, [])
    assert [each.policies.sink for each in subscriptions(f"{root}2")] == ["kafka://localhost:9092/due"]
    others = json.loads(invoke(["clone", "--warehouse", root, "--target", f"{root}3", "--json"]).stdout)
    assert others["sinks"] == [{"topic": "t", "subscription": "s", "sink": "kafka://localhost:9092/due"}]


@pytest.mark.parametrize(
    ("words", "code"), [(["--target", "."], 2), (["--target", "{root}2", "--as-of", "2999-01-01"], 2), ([], 2)]
)
def test_a_folder_that_is_in_use_and_a_time_to_come_are_refused(root: str, words: list[str], code: int) -> None:
    """One line says it."""
    done = invoke(["clone", "--warehouse", root, *(each.format(root=root) for each in words)])
    assert done.exit_code == code
    assert not Path(f"{root}2").exists()

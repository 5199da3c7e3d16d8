"""A registry with many subscriptions: what each further one costs does not grow with those that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the registry needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing import lines
from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe, subscriptions, unsubscribe
from pipeline.delta.deltars import open_table
from pipeline.subscriptions.incarnations import Incarnation, audiences
from pipeline.subscriptions.incarnations import Subscription as Line
from pipeline.subscriptions.lines import Registered
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.registry import Registry
from schemas import SUBSCRIPTIONS
from tests.support.stages import Stages

MANY = 20


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A new warehouse."""
    return Stages(str(tmp_path / "warehouse"))


def registry_of(stages: Stages) -> Registry:
    """As ingest reads it."""
    return Registry(stages.warehouse)


def test_who_registers_while_ingest_stands_costs_no_reading_of_each_version(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch after 400 registrations took a minute: each version was read as a whole."""
    registry = registry_of(stages)
    begin = registry.version()
    for number in range(MANY):
        subscribe(stages.root, Subscription("t", f"s{number}"))
    set_policies(stages.root, "t", "s3", Policies(max_rate=5))
    unsubscribe(stages.root, "t", "s4")
    unsubscribe(stages.root, "t", "s5")
    subscribe(stages.root, Subscription("t", "s5"))
    read, whole = list[int](), Registry._read

    def counted(registry: Registry, version: int) -> Registered:
        read.append(version)
        return whole(registry, version)

    monkeypatch.setattr(Registry, "_read", counted)
    end = registry.version()
    known = [("t", f"s{number}") for number in range(MANY)]
    assert registry.gone_between(known, begin, end) == {("t", "s5")}
    assert len(read) == 2
    assert len(registry.at(end).lines) == MANY - 1


def test_the_files_of_the_registry_are_merged(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that is registered alone is a file, and whoever reads the registry opens all of them."""
    monkeypatch.setattr(lines, "_FILES", 5)
    for number in range(MANY):
        subscribe(stages.root, Subscription("t", f"s{number}"))
        assert len(open_table(stages.root, SUBSCRIPTIONS).file_uris()) <= 6
    assert len(subscriptions(stages.root)) == MANY
    registry = registry_of(stages)
    assert registry.gone_between([("t", "s0")], 0, registry.version()) == frozenset()


def test_an_audience_whose_members_came_one_by_one_is_as_large_as_its_members() -> None:
    """Ten thousand of them took 0.5 GB and 12 s at each join."""
    count = 20_000
    subscribed = [Line("t", f"s{number}", 1 + number % 7, earliest=False) for number in range(count)]
    lives = {(each.topic, each.name): Incarnation(1, 10 * n, each.tick_ms) for n, each in enumerate(subscribed)}
    audience = audiences(subscribed, lives)["t"]
    assert (len(audience.since), len(audience.members), audience.entries) == (count, count, ())
    assert [name for name, _, _ in audience.listeners(2)] == ["s0", "s1", "s2"]
    assert (audience.tick_ms(0), audience.tick_ms(count - 1), len(audience.listeners(count - 1))) == (1, 1, count)

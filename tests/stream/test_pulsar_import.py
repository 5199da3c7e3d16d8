"""What waits in a real Pulsar broker is brought over: each message is delivered by one of the two, whatever dies."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.config.errors import BrokerRefused
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.moving.places import Wanted
from pipeline.moving.pulsar import Taken, _Partition, take
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY
from schemas import INBOX
from tests.support.brokers import pulsar_client
from tests.support.client import new_warehouse
from tests.support.invoked import invoke

if TYPE_CHECKING:
    from benchmarks.support.pulsar import Broker

HOUR_MS, SOON_MS = 3_600_000, 30_000
GUIDE = Path(__file__).parents[2] / "docs" / "pulsar.md"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def topic(pulsar: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic with the subscription `s`."""
    name = pulsar.create(request.node.name)
    pulsar.admin("PUT", f"persistent/{name}/subscription/s", expected=(204,))
    return name


def wanted(pulsar: Broker, topic: str, **fields: Any) -> Wanted:  # noqa: ANN401 - fields
    """All that waits for the subscription `s`, and what is taken is acknowledged."""
    base = {"to": "orders", "margin_ms": SOON_MS, "acknowledge": True, **fields}
    return Wanted(pulsar.service, pulsar.admin_url, topic, "s", **base)


def send(pulsar: Broker, topic: str, *names: str, due_ms: int | None = None, **options: Any) -> None:  # noqa: ANN401 - the client's
    """Send messages; their payloads are their names."""
    with pulsar.connected() as found:
        producer = found.create_producer(f"persistent://{topic}", batching_enabled=due_ms is None)
        for name in names:
            producer.send_async(name.encode(), lambda *_: None, deliver_at=due_ms, **options)
        producer.flush()


def inbox(root: str) -> list[str]:
    """The payloads that were taken, in no order."""
    return sorted(each.decode() for each in open_table(root, INBOX).to_pyarrow_table()["payload"].to_pylist())


def unacknowledged(pulsar: Broker, topic: str) -> list[str]:
    """What Pulsar has yet to deliver to the subscription, or to hear of, due or not."""
    count = pulsar.admin("GET", f"persistent/{topic}/stats")["subscriptions"]["s"]["msgBacklog"]
    peeked = [f"persistent/{topic}/subscription/s/position/{number}" for number in range(1, count + 1)]
    # A message of a batch is shown with what stands before it there.
    return sorted(re.findall(r"\w+$", str(pulsar.admin("GET", each)))[0] for each in peeked)


def last(steps: Iterator[Taken]) -> Taken:
    """Run an import to its end."""
    *_, found = steps
    return found


def test_what_waits_is_taken_and_the_rest_stays(root: str, pulsar: Broker, topic: str) -> None:
    """What has no due time, or will be due before long, is Pulsar's; what was acknowledged is nobody's."""
    later = wall_ms() + HOUR_MS
    send(pulsar, topic, "now1")
    send(pulsar, topic, "now2")
    send(pulsar, topic, "later1", "later2", due_ms=later)
    send(pulsar, topic, "soon", due_ms=wall_ms() + SOON_MS // 2)
    send(pulsar, topic, "later3", due_ms=later)
    with pulsar.connected() as found:
        consumer = found.subscribe(f"persistent://{topic}", "s", consumer_type=pulsar_client().ConsumerType.Shared)
        consumer.acknowledge(consumer.receive(30_000))
        consumer.close()
    done = last(take(root, wanted(pulsar, topic)))
    assert (done.examined, done.taken, done.left, done.acknowledged) == (5, 3, 2, 3)
    assert done.first_due_ms == done.last_due_ms == later
    assert inbox(root) == ["later1", "later2", "later3"]
    assert unacknowledged(pulsar, topic) == ["now2", "soon"]


def test_a_message_keeps_what_it_has(root: str, pulsar: Broker, topic: str) -> None:
    """Key, properties and times; what the table has no column for is among the properties."""
    later = wall_ms() + HOUR_MS
    full = {"partition_key": "k", "ordering_key": "o", "event_timestamp": 7, "properties": {"a": "1", "é": "ü"}}
    send(pulsar, topic, "full", due_ms=later, **full)
    send(pulsar, topic, "bare", due_ms=later)
    last(take(root, wanted(pulsar, topic)))
    rows = {row["payload"]: row for row in open_table(root, INBOX).to_pyarrow_table().to_pylist()}
    found, bare = rows[b"full"], rows[b"bare"]
    assert dict(found["properties"]) == {"a": "1", "é": "ü", ORDERING_KEY: "o", EVENT_TIME: "7"}
    assert (found["topic"], found["message_key"], found["deliver_after_ms"]) == ("orders", "k", None)
    assert found["deliver_at"] == datetime.fromtimestamp(later / 1_000, UTC)
    assert abs(found["publish_time"].timestamp() * 1_000 - wall_ms()) < HOUR_MS
    assert (bare["message_key"], bare["properties"]) == (None, None)


def test_a_dry_run_changes_nothing(root: str, pulsar: Broker, topic: str) -> None:
    """It says what would be taken."""
    send(pulsar, topic, "a", "b", due_ms=wall_ms() + HOUR_MS)
    assert last(take(root, wanted(pulsar, topic), dry=True)).taken == 2
    assert (inbox(root), unacknowledged(pulsar, topic)) == ([], ["a", "b"])


class Killed(Exception):
    """Stands for the death of the process."""


def dies_in(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Let an import die in the method, when it is called for the second commit."""
    calls, true = iter([False, True]), getattr(_Partition, method)

    def dying(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - of the method
        found = true(self, *args, **named)
        if next(calls):
            raise Killed
        return found

    monkeypatch.setattr(_Partition, method, dying)


@pytest.mark.parametrize("after", ["commit", "note"])
def test_an_import_that_dies_goes_on(root: str, pulsar: Broker, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Behind a commit and before its acknowledgements, or before the commit: all is taken and acknowledged, once."""
    topic, names = pulsar.create(f"dies-{after}"), [f"m{number}" for number in range(9)]
    pulsar.admin("PUT", f"persistent/{topic}/subscription/s", expected=(204,))
    send(pulsar, topic, *names, due_ms=wall_ms() + HOUR_MS)
    with monkeypatch.context() as patched:
        if after == "commit":
            dies_in(patched, "_take")
        else:
            patched.setattr("pipeline.moving.places.append", _failing_at_second())
        with pytest.raises(Killed):
            last(take(root, wanted(pulsar, topic), chunk=3))
    assert inbox(root) == names[: 6 if after == "commit" else 3]
    done = last(take(root, wanted(pulsar, topic), chunk=4))
    assert (done.taken, done.acknowledged) == ((3, 6) if after == "commit" else (6, 6))
    assert (inbox(root), unacknowledged(pulsar, topic)) == (names, [])


def _failing_at_second() -> Callable[..., int]:
    from pipeline.delta.deltars import append  # noqa: PLC0415 - before it is replaced

    calls = iter([False, True])

    def appended(*args: Any, **named: Any) -> int:  # noqa: ANN401 - of the function
        if next(calls):
            raise Killed
        return append(*args, **named)

    return appended


def test_a_message_that_an_earlier_run_has_left_is_never_acknowledged(root: str, pulsar: Broker, topic: str) -> None:
    """It stays with Pulsar, also when a run that takes shorter margins comes behind the position."""
    send(pulsar, topic, "soon", due_ms=wall_ms() + HOUR_MS)
    send(pulsar, topic, "late", due_ms=wall_ms() + 3 * HOUR_MS)
    last(take(root, wanted(pulsar, topic, margin_ms=2 * HOUR_MS)))
    assert last(take(root, wanted(pulsar, topic))).taken == 0
    assert (inbox(root), unacknowledged(pulsar, topic)) == (["late"], ["soon"])


def test_without_acknowledging_pulsar_keeps_all_and_a_later_run_acknowledges(
    root: str, pulsar: Broker, topic: str
) -> None:
    """A second run takes what was sent since, and nothing twice."""
    later = wall_ms() + HOUR_MS
    send(pulsar, topic, "a", due_ms=later)
    assert last(take(root, wanted(pulsar, topic, acknowledge=False))).taken == 1
    send(pulsar, topic, "b", due_ms=later)
    done = last(take(root, wanted(pulsar, topic, acknowledge=False)))
    assert (done.taken, done.before) == (1, 1)
    assert unacknowledged(pulsar, topic) == ["a", "b"]
    done = last(take(root, wanted(pulsar, topic)))
    assert (done.taken, done.acknowledged) == (0, 2)
    assert (inbox(root), unacknowledged(pulsar, topic)) == (["a", "b"], [])


def test_all_partitions_are_taken(root: str, pulsar: Broker) -> None:
    """Each has its own cursor and place."""
    topic, names = pulsar.create("divided", 3), [f"m{number}" for number in range(12)]
    pulsar.admin("PUT", f"persistent/{topic}/subscription/s", expected=(204,))
    send(pulsar, topic, *names, due_ms=wall_ms() + HOUR_MS)
    found = {step.partition: step for step in take(root, wanted(pulsar, topic))}
    assert sum(each.taken for each in found.values()) == len(names)
    assert inbox(root) == sorted(names)
    assert len(found) == 3


def test_a_subscription_that_does_not_wait_or_is_not_there_is_refused(root: str, pulsar: Broker, topic: str) -> None:
    """Nothing is made in the broker."""
    with pytest.raises(BrokerRefused, match="no subscription 'gone'"):
        last(take(root, Wanted(pulsar.service, pulsar.admin_url, topic, "gone", "orders", SOON_MS)))
    with (
        pulsar.connected() as found,
        closing(found.subscribe(f"persistent://{topic}", "s")),
        pytest.raises(BrokerRefused, match="Exclusive"),
    ):
        last(take(root, wanted(pulsar, topic)))


def test_the_commands_of_the_guide_move_over(root: str, pulsar: Broker, topic: str) -> None:
    """As a reader types them, with addresses and names of their own."""
    later = wall_ms() + HOUR_MS
    send(pulsar, topic, "a", "b", due_ms=later)
    part = GUIDE.read_text().partition("## Moving over")[2]
    blocks = [block.partition("```")[0].replace("\\\n", " ") for block in part.split("```sh\n")[1:]]
    ours = {
        "localhost:6650": pulsar.service.removeprefix("pulsar://"),
        "localhost:8080": pulsar.admin_url.removeprefix("http://"),
        "public/default/orders": topic,
        "--topic orders": f"--topic {topic.rpartition('/')[2]}",
        "--subscription workers": "--subscription s",
        "--warehouse W": f"--warehouse {root}",
    }
    text = "".join(blocks)
    for theirs, mine in ours.items():
        text = text.replace(theirs, mine)
    said = []
    for words in filter(None, map(shlex.split, text.splitlines())):
        result = invoke(words[1:])
        assert result.exit_code == 0, result.output
        said.append(result.output)
    assert any("would take 2, due from" in each for each in said)
    assert any("took 2" in each and "2 acknowledged" in each for each in said)
    assert (inbox(root), unacknowledged(pulsar, topic)) == (["a", "b"], [])


def test_figures_are_printed(root: str, pulsar: Broker, topic: str) -> None:
    """As JSON where output goes; how far it is where news goes (`tests/unit/jobs/test_progress.py`)."""
    send(pulsar, topic, "a", due_ms=wall_ms() + HOUR_MS)
    where = ["--service", pulsar.service, "--admin", pulsar.admin_url, "--topic", topic, "--subscription", "s"]
    words = ["import", "pulsar", "--warehouse", root, *where, "--json"]
    result = invoke(words)
    (figures,) = json.loads(result.stdout)
    assert (figures["partition"], figures["taken"], figures["acknowledged"]) == (topic, 1, 0)

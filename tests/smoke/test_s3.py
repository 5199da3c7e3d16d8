"""The stages on a store that speaks S3: one session for all tests of this file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("moto", reason="the store needs requirements/all.lock")

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.commands import run
from jobs.commands.profiles import profile_from
from jobs.commands.spark import session
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing import subscriptions
from pipeline.config.session import Machine
from pipeline.config.sparkversion import CONDITIONAL_PUTS, hadoop, version_of
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance import layout
from pipeline.maintenance.rewrite import Rewriting
from pipeline.storage.hadoop import HadoopFiles, session_files
from pipeline.storage.storecheck import NoConditionalPuts, StoreRefused, check_store
from schemas import INBOX
from tests.support.invoked import invoke
from tests.support.racing import Race
from tests.support.s3 import CROWDED, FORGETFUL, UNSEEN, named
from tests.support.spark import QUICK_JVM, end_jvm

BUCKET = "s3a://bucket"
PROFILE = """
[session]
cores = 2
[run]
trigger = "1 second"
[settings]
driver_rows = 1_000_000
[clock]
lookahead_ms = 1_000
"""

PUTS_ONCE = version_of(hadoop()) >= CONDITIONAL_PUTS
"""Whether the Hadoop that is there puts an object only where none is."""
in_the_store = pytest.mark.skipif(not PUTS_ONCE, reason="Hadoop 3.4.1 of Spark 4.0 has no conditional put")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as the first `delayline run` of a user starts it for a warehouse in a bucket."""
    with named("bucket", FORGETFUL, CROWDED, UNSEEN), pytest.MonkeyPatch.context() as environment:
        # What it keeps for further starts would take its JVM a quarter of a minute, at its end.
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        # Beside a warehouse on the disk it is for a Hadoop, too, with which a warehouse in the bucket is refused.
        paths = [f"{BUCKET}/any"] if PUTS_ONCE else [str(tmp_path_factory.mktemp("disk")), f"{BUCKET}/any"]
        with session("delayline-s3", Machine(cores=2, java_options=QUICK_JVM), *paths) as made:
            yield made
    end_jvm()


@in_the_store
def test_a_version_is_added_only_where_none_is(spark: SparkSession) -> None:
    """A producer's version that came between the look and the put stays; it was replaced, its messages lost."""
    root = f"s3a://{UNSEEN}/added"
    create_all(root)
    log, path = TableLog(spark, path_of(root, INBOX)), path_of(root, INBOX)
    assert log.head().version == 0
    send(root, [OutgoingMessage("t", b"kept")])
    assert not log.add(1, ['{"commitInfo":{"operation":"ours"}}'])
    assert DeltaTable(path).to_pyarrow_table()["payload"].to_pylist() == [b"kept"]
    assert log.add(2, ['{"commitInfo":{"operation":"ours"}}'])
    assert open_table(root, INBOX).version() == 2


@in_the_store
def test_a_put_that_meets_another_is_tried_again(spark: SparkSession) -> None:
    """Amazon answers 409 while two puts of one object are under way: neither has won yet."""
    files, path = HadoopFiles(spark.sparkContext), f"s3a://{CROWDED}/object"
    assert files.create(path, "first")
    assert not files.create(path, "second")
    assert session_files(spark).text(path) == "first"


@in_the_store
def test_a_store_in_which_a_commit_replaces_another_is_refused(spark: SparkSession) -> None:
    """Nobody would notice there that messages of producers are gone."""
    check_store(spark, f"{BUCKET}/wh")
    with pytest.raises(NoConditionalPuts) as refused:
        check_store(spark, f"s3a://{FORGETFUL}/wh")
    assert (refused.value.root, refused.value.found) == (f"s3a://{FORGETFUL}/wh", "one object replaced another")
    with pytest.raises(StoreRefused):
        check_store(spark, "s3a://nobucket/wh")


@pytest.mark.skipif(PUTS_ONCE, reason="only Spark 4.0 brings such a Hadoop")
def test_a_hadoop_that_knows_no_conditional_put_is_refused_with_a_sentence(spark: SparkSession) -> None:
    """As under spark-submit, where the platform brings Hadoop; it was a stack trace."""
    with pytest.raises(NoConditionalPuts) as refused:
        check_store(spark, f"{BUCKET}/wh")
    assert f"(Hadoop {hadoop()})" in refused.value.found


def merge(warehouse: Warehouse) -> None:
    """Merge the files of the inbox, as a round does with those that ingest has read."""
    layout._merged(Rewriting.of(warehouse, INBOX), frozenset())


@pytest.mark.soak
@in_the_store
def test_nothing_is_lost_while_producers_stages_and_maintenance_commit_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The command, used from outside for ten seconds: all that was acknowledged arrives once, and `stop` ends it."""
    root, race = f"{BUCKET}/raced", Race(f"{BUCKET}/raced")
    create_all(root)
    subscriptions.subscribe(root, subscriptions.Subscription("t", "s", start="earliest", tick_ms=1))
    profile = tmp_path / "profile.toml"
    profile.write_text(PROFILE)
    monkeypatch.setattr(run, "session", lambda *_, **__: nullcontext(spark))
    said: list[str] = []

    def use() -> None:
        try:
            race.run(10, lambda: merge(Warehouse(root, spark)))
        finally:
            invoke(["stop", "--warehouse", "s3://bucket/raced"])

    user = Thread(target=use)

    def hear(line: str) -> None:
        said.append(line)
        if line.startswith("Running on"):
            user.start()

    try:
        run.run(root, profile_from(profile), hear)
    finally:
        race.over.set()
        user.join()
    race.check()
    warning = f"No lock keeps a second process out of {root}: at its first commit one of the two is refused"
    assert warning in caplog.messages
    count = len(race.acknowledged)
    assert said[-1] == f"Stopped  sent {count:,}  accepted {count:,}  rejected 0  delivered {count:,}"
    pending = invoke(["pending", "--warehouse", root]).stdout
    assert pending == "t/s  nothing pending\n"
    looked = invoke(["doctor", "--warehouse", root])
    assert looked.exit_code == 0, looked.stdout
    received = invoke(["receive", "--warehouse", root, "--no-follow"]).stdout
    assert received.count("\n") == count

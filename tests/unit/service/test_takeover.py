"""Where a new checkpoint of dispatch begins, without a JVM."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree, rmtree
from unittest.mock import patch

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.restore import PreparedState, RestoreScope, _Restoring
from pipeline.service.takeover import take_over_dispatch
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.policies import Policies
from pipeline.testing.stages import VIRTUAL
from schemas import DELIVERIES, REDELIVERY
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 1_700_000_000_000


def test_a_copy_without_any_delivery_is_taken_over_from_whoever_wrote_what_was_copied_later(tmp_path: Path) -> None:
    """While the stages ran: `publications` has the first delivery, and `deliveries`, which came first, has none."""
    stages = Stages(str(tmp_path / "warehouse"))
    subscribe(stages.root, Subscription("t", "s", tick_ms=1))
    copytree(f"{stages.root}/{DELIVERIES.name}", tmp_path / "before")
    stages.instant = T0
    assert stages.ingest()
    assert stages.ingest(message("a"))
    assert stages.release()
    assert stages.dispatch()
    rmtree(f"{stages.root}/{DELIVERIES.name}")
    copytree(tmp_path / "before", f"{stages.root}/{DELIVERIES.name}")
    found = take_over_dispatch(Warehouse(stages.root), Options(VIRTUAL))
    assert found.after == (stages._book("dispatch").owner,)


@pytest.mark.parametrize("before", [(), ("first",)])
def test_what_was_prepared_with_what_a_batch_held_is_looked_for_when_its_note_is_gone(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    """The new checkpoint begins behind what is held: what is not looked for up to there nobody would ever get."""
    looked: list[tuple[int, int]] = []
    stages = Stages(str(tmp_path / "warehouse"))
    subscribe(stages.root, Subscription("t", "s", tick_ms=1))
    subscribe(stages.root, Subscription("t", "paused", tick_ms=1, policies=Policies(paused=True)))
    stages.instant = T0
    assert stages.ingest()
    for each in before:
        assert stages.ingest(message(each))
        assert stages.release()
        assert stages.dispatch()
    assert stages.ingest(message("lost"))
    assert stages.release()
    stages.die_after("dispatch.held")
    assert not stages.dispatch()
    (note,) = Path(stages.root, DELIVERIES.name, "_prepared").glob(f"{len(before) + 1}.json")
    note.unlink()

    def lacking(_: _Restoring, __: PreparedState, wanted: RestoreScope) -> pa.Table:
        looked.append(wanted.upto)
        return arrow_schema(REDELIVERY.columns).empty_table()

    with patch.object(_Restoring, "begins", lambda _: {}), patch.object(_Restoring, "_lacking", lacking):
        found = take_over_dispatch(Warehouse(stages.root), Options(VIRTUAL))
    assert looked == [(found.version, found.index)]

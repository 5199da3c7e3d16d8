"""Delta's sums of the inbox are kept beside ingest, for producers that write none."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.client.create import create_all
from pipeline.client.inbox import Message, rows_of_messages, send
from pipeline.delta.deltars import append
from pipeline.ingest.inboxsums import InboxSums, summing
from pipeline.storage.files import Files
from schemas import INBOX

_LOOKS = 1_000
ROWS = rows_of_messages([Message("orders", b"x")])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """An empty inbox."""
    create_all(str(tmp_path))
    return str(tmp_path / INBOX.name)


def written(path: str) -> dict[int, dict[str, Any]]:
    """The sums that are there, by version."""
    files = sorted(Path(path, "_delta_log").glob("*.crc"))
    return {int(file.stem): json.loads(file.read_text()) for file in files}


def counted(path: str) -> tuple[int, int]:
    """How many files and bytes the table has, by delta-rs."""
    sizes = DeltaTable(path).get_add_actions().to_struct_array().to_pylist()
    return len(sizes), sum(each["size_bytes"] for each in sizes)


def test_each_look_writes_the_sums_of_the_newest_version(path: str) -> None:
    """Delta looks at the newest one only, and finds in it what it would run a job for."""
    kept, root = InboxSums(Files(), path), str(Path(path).parent)
    for look in range(2):
        for _ in range(2):
            send(root, [Message("orders", b"x")])
        kept.keep_up()
        newest = 2 * (look + 1)
        assert list(written(path)) == [0, *range(2, newest + 1, 2)]
        told = written(path)[newest]
        assert (told["numFiles"], told["tableSizeBytes"]) == counted(path)
        assert (told["metadata"], told["protocol"]) == (written(path)[0]["metadata"], written(path)[0]["protocol"])


def test_sums_that_somebody_wrote_are_carried_on(path: str) -> None:
    """Delta writes its own, and knows more."""
    send(str(Path(path).parent), [Message("orders", b"x")])
    theirs = written(path)[0] | {"numFiles": 7, "tableSizeBytes": 70}
    Path(path, "_delta_log", f"{1:020d}.crc").write_text(json.dumps(theirs))
    kept = InboxSums(Files(), path)
    kept.keep_up()
    assert written(path)[1] == theirs
    send(str(Path(path).parent), [Message("orders", b"x")])
    kept.keep_up()
    assert written(path)[2]["numFiles"] == 8


def test_what_is_no_append_has_no_sums_until_its_writer_gives_some(path: str) -> None:
    """Which files a version took out is known, but not what else it may have changed."""
    kept = InboxSums(Files(), path)
    append(str(Path(path).parent), INBOX, ROWS)
    DeltaTable(path).delete()
    append(str(Path(path).parent), INBOX, ROWS)
    kept.keep_up()
    assert list(written(path)) == [0]
    append(str(Path(path).parent), INBOX, ROWS)
    kept.keep_up()
    assert list(written(path)) == [0]


def test_transactions_of_producers_are_not_hidden(path: str) -> None:
    """Sums that list none would let a producer append a second time what it has appended before."""
    append(str(Path(path).parent), INBOX, ROWS, once=("producer", 1))
    append(str(Path(path).parent), INBOX, ROWS)
    InboxSums(Files(), path).keep_up()
    assert "setTransactions" not in written(path)[2]


def test_a_log_that_was_cut_before_its_last_sums_is_left_to_delta(path: str) -> None:
    """What the table held before is in a checkpoint, which nobody reads for this."""
    for _ in range(2):
        append(str(Path(path).parent), INBOX, ROWS)
    DeltaTable(path).create_checkpoint()
    for version in range(2):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    InboxSums(Files(), path).keep_up()
    assert list(written(path)) == [0]


def test_sums_follow_while_the_stages_run(path: str) -> None:
    """A thread does it. Old ones go: they would make the log twice as long, and Delta lists all of it."""
    with summing(Files(), path):
        for version in range(1, 4):
            append(str(Path(path).parent), INBOX, ROWS)
            sums = Path(path, "_delta_log", f"{version:020d}.crc")
            for _ in range(_LOOKS):
                if not sums.exists():
                    Event().wait(0.01)
    assert list(written(path)) == [0, 2, 3]


def test_sums_are_begun_again_after_a_look_that_failed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that maintenance takes away in between is no reason to be slow for the life of the process."""
    fails, keep_up = iter([True]), InboxSums.keep_up

    def once(kept: InboxSums) -> None:
        if next(fails, False):
            raise FileNotFoundError(path)
        keep_up(kept)

    monkeypatch.setattr(InboxSums, "keep_up", once)
    monkeypatch.setattr("pipeline.ingest.inboxsums._PAUSE_S", 0)
    send(str(Path(path).parent), [Message("orders", b"x")])
    waited = Event()
    with summing(Files(), path):
        for _ in range(_LOOKS):
            if 1 in written(path):
                break
            waited.wait(0.01)
    assert 1 in written(path)

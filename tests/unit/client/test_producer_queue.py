"""What waits for the store is taken away when it is time, whoever flushes when."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.message import MessageId
from pipeline.client.producing.queue import Queue
from pipeline.client.producing.rows import Content, Entry, sender_of

_PATIENCE_S = 20


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_behind_a_flush_that_had_nothing_to_begin_is_written_at_once(*, fails: bool) -> None:
    """It waited for up to ten seconds, when a turn was written while somebody flushed, or failed with what waited."""
    writing, goes_on, done = threading.Event(), threading.Event(), threading.Event()

    def write(entries: Sequence[Entry]) -> None:
        writing.set()
        assert goes_on.wait(_PATIENCE_S)
        if fails:
            queue.failed(entries, ValueError())
        else:
            queue.sent(entries, [MessageId.earliest] * len(entries))

    queue, sender, content = Queue(write, 0), sender_of("t", None, {}), Content(b"", 0)
    queue.put(sender, content, None, lambda *_: None, hurry=True)
    assert writing.wait(_PATIENCE_S)
    if fails:
        queue.put(sender, content, None, lambda *_: None, hurry=True)
    flush = threading.Thread(target=queue.flush, args=([sender],))
    flush.start()
    while queue._begin_at == float("inf"):
        time.sleep(0.001)
    goes_on.set()
    flush.join(_PATIENCE_S)
    time.sleep(0.05)
    begun = time.monotonic()
    queue.put(sender, content, None, lambda *_: done.set(), hurry=True)
    assert done.wait(_PATIENCE_S)
    assert time.monotonic() - begun < 5
    queue.shut()

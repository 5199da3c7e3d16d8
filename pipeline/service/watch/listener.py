"""Spark's word on each batch, taken by a listener: to the log as a line of JSON, and to the metrics."""

import json
import logging
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pipeline.config.jvm import names_of_jvm
from pipeline.service.watch.metrics import Metrics
from pipeline.service.watch.progress import PREFIX, parse

LOG = logging.getLogger("delayline.progress")
"""A line of JSON for each batch (INFO), and for each that lost rows (ERROR)."""


class Listener(StreamingQueryListener):
    """Follows our queries in a session; others in it are passed over."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._stages, self._in_jvm = metrics, dict[str, str](), None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note which stage the query is."""
        if event.name is not None and event.name.startswith(PREFIX):
            stage = self._stages[str(event.runId)] = event.name.removeprefix(PREFIX)
            self._metrics.started(stage)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch, as PySpark brings it to other listeners."""
        self.take(event.progress.json)

    def take(self, text: str) -> None:
        """A batch, as Spark's JSON."""
        batch = parse(json.loads(text))
        if batch is None:
            return
        batch = replace(batch, rows=batch.rows + self._metrics.taken(batch.stage))
        LOG.info(batch.dumps())
        if batch.dropped:
            LOG.error("stage %s lost %d rows behind its watermark in batch %d", batch.stage, batch.dropped, batch.batch)
        self._metrics.progressed(batch)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """A query ended, whatever the reason."""
        stage = self._stages.pop(str(event.runId), None)
        if stage is not None:
            self._metrics.ended(stage)

    @property
    def _jlistener(self) -> Any:  # noqa: ANN401 - an object of the JVM
        """The listener as the JVM knows it; Spark's base class has the same with a door of its own."""
        if self._in_jvm is None:
            self._in_jvm = names_of_jvm().PythonStreamingQueryListenerWrapper(_Door(self))
        return self._in_jvm


class _Door(JStreamingQueryListener):
    """Takes a batch as one text.

    PySpark asks the JVM for each of its hundred fields: 0.1 to 0.9 s for a batch on a busy machine, the text 1 ms.
    """

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._listener = listener

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: ANN401, N802 - an object of the JVM, Spark's name
        self._listener.take(jevent.progress().json())

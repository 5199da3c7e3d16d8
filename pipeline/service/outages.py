"""A store that does not answer for a while: what says so, and when a stage is started again (decision 0074)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pipeline.config.wallclock import monotonic_ms

PATIENCE_MS = 15 * 60_000
"""A store that does not answer for longer ends the stage."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000
"""Before the first start, and between two; twice as long each time."""
_SAID = re.compile(
    # pyarrow and the clients below it: S3, GCS, Azure.
    r"AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING)"
    r"|HTTP status 5\d\d"
    r"|google::cloud::Status\((UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL)"
    # delta-rs.
    r"|error sending request|error decoding response body|after \d+ retries"
    # Hadoop's connectors of stores. Spark's own connections, between executors for instance, say some of it as well.
    r"|SdkClientException: Unable to execute HTTP request|ApiCallTimeoutException"
    # 409: somebody else puts the same object, again and again.
    r"|Status Code: 409"
    r"|AWSStatus500Exception|AWSServiceThrottledException|ConnectTimeoutException|NoHttpResponseException"
    r"|java\.net\.(UnknownHostException|SocketTimeoutException|NoRouteToHostException)"
)
"""What the clients of stores say when a request had no answer, or "try again later"."""
_MACHINE = "169.254.169.254"
"""Where clouds tell a machine its keys."""


def no_answer(error: object) -> str | None:
    """The line of an error that says that a store did not answer; None when none does.

    What a store says of keys, buckets and rights is an answer. Clients that lack keys ask the machine for them.
    """
    lines = (line.strip() for line in str(error).splitlines() if _MACHINE not in line)
    return next((line for line in lines if _SAID.search(line)), None)


class Progressing(Protocol):
    """A query of Spark's, or settle."""

    @property
    def lastProgress(self) -> Any:  # noqa: ANN401, N802 - Spark's name and kind
        """What it said of its last batch; None: it has had none."""


@dataclass(frozen=True)
class Wait:
    """A stage waits for its store.

    Attributes:
        ended: the query that ended because of it last.
        since_ms: when the store did not answer for the first time, by the monotonic clock.
        next_ms: when the stage is started next, or was started last.
        pause_ms: between `next_ms` and the start before.
    """

    ended: object
    since_ms: int
    next_ms: int
    pause_ms: int = _FIRST_PAUSE_MS

    @classmethod
    def after(cls, last: Wait | None, ended: Progressing) -> Wait:
        """A query has ended: the wait goes on when it has had no batch since it was started, else a new one begins."""
        if last is not None and (last.ended is ended or ended.lastProgress is None):
            return replace(last, ended=ended)
        now = monotonic_ms()
        return cls(ended, now, now + _FIRST_PAUSE_MS)

    @property
    def over(self) -> bool:
        """Whether it has lasted too long."""
        return monotonic_ms() - self.since_ms > PATIENCE_MS

    @property
    def asleep(self) -> bool:
        """Whether it is not the time of the next start yet."""
        return monotonic_ms() < self.next_ms

    def longer(self) -> Wait:
        """The wait when the next start is to be later."""
        pause = min(2 * self.pause_ms, _LONGEST_PAUSE_MS)
        return replace(self, next_ms=monotonic_ms() + pause, pause_ms=pause)

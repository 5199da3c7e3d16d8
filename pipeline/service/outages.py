"""A store that does not answer for a while: what says so, and when a stage is started again (decision 0074)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
    # Hadoop: connectors of stores, and its own file system.
    r"|SdkClientException|AWSStatus500Exception|AWSServiceThrottledException|AWSApiCallTimeoutException"
    r"|ApiCallTimeoutException|ConnectTimeoutException|NoHttpResponseException|NoRouteToHostException"
    r"|java\.net\.(ConnectException|UnknownHostException|SocketTimeoutException)"
    r"|SafeModeException|StandbyException"
)
"""What the clients of stores say when a request had no answer, or "try again later"."""


def no_answer(error: object) -> str | None:
    """The line of an error that says that a store did not answer; None when none does.

    What a store says of keys, buckets and rights is an answer.
    """
    return next((line.strip() for line in str(error).splitlines() if _SAID.search(line)), None)


@dataclass(frozen=True)
class Wait:
    """A stage waits for its store.

    Attributes:
        since_ms: when the store did not answer for the first time, by the monotonic clock.
        next_ms: when the stage is started next, or was started last.
        pause_ms: between `next_ms` and the start before.
    """

    since_ms: int
    next_ms: int
    pause_ms: int = _FIRST_PAUSE_MS

    @classmethod
    def after(cls, last: Wait | None) -> Wait:
        """A stage has ended: the wait goes on, or a new one begins when it had run meanwhile."""
        now = monotonic_ms()
        if last is not None and now <= last.next_ms + 2 * _LONGEST_PAUSE_MS:
            return last
        return cls(now, now + _FIRST_PAUSE_MS)

    @property
    def over(self) -> bool:
        """Whether it has lasted too long."""
        return monotonic_ms() - self.since_ms > PATIENCE_MS

    @property
    def asleep(self) -> bool:
        """Whether it is not the time of the next start yet."""
        return monotonic_ms() < self.next_ms

    def longer(self) -> Wait:
        """The same, the next start later."""
        pause = min(2 * self.pause_ms, _LONGEST_PAUSE_MS)
        return replace(self, next_ms=monotonic_ms() + pause, pause_ms=pause)

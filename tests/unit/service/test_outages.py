"""What clients of stores say when nobody answers, and what is an answer."""

from __future__ import annotations

import pytest

from pipeline.service.outages import no_answer

READING = "OSError: When reading information for key 'w/inbox/_delta_log/1.json' in bucket 'b': AWS Error"
UNABLE = "software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP request: Connection refused"
AWAY = [
    f"{READING} NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could not connect to server",
    f"{READING} NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached",
    f"{READING} SLOW_DOWN during PutObject operation: Please reduce your request rate.",
    f"{READING} UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
    "google::cloud::Status(UNAVAILABLE: Retry policy exhausted)",
    "Generic S3 error\n  Error performing GET http://127.0.0.1:1/b/w in 1.9s, after 10 retries, max_retries",
    f"An exception was raised by the Python Proxy\norg.apache.hadoop.fs.s3a.AWSClientIOException: {UNABLE}",
    "Caused by: java.net.UnknownHostException: bucket.s3.amazonaws.com",
]
ANSWERS = [
    f"{READING} ACCESS_DENIED during HeadObject operation: No response body.",
    f"{READING} NO_SUCH_BUCKET during ListObjectsV2 operation: The specified bucket does not exist",
    f"{READING} UNKNOWN (HTTP status 400) during HeadObject operation: No response body.",
    "Generic S3 error: Error performing GET in 20ms - Server returned non-2xx status code: 403 Forbidden",
    "pipeline.config.errors.ForeignOwner: stage ingest: messages was last written by a, this checkpoint is b",
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7.",
    "py4j.protocol.Py4JNetworkError: An error occurred while trying to connect to the Java server (127.0.0.1:4)",
    "[Errno 111] Connection refused",
    "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 9s, after 10 retries",
    "software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from any of the providers",
    "Caused by: java.net.ConnectException: Connection refused: executor of a cluster",
    "None",
]


@pytest.mark.parametrize("said", AWAY)
def test_a_store_that_does_not_answer_is_known_by_what_its_clients_say(said: str) -> None:
    """The line is given, to be told."""
    assert no_answer(RuntimeError(f"first line\n{said}")) in [line.strip() for line in said.splitlines()]


@pytest.mark.parametrize("said", ANSWERS)
def test_an_answer_that_one_does_not_like_is_one(said: str) -> None:
    """Keys and rights do not come back by waiting; and where the JVM is gone there is no store to wait for."""
    assert no_answer(said) is None

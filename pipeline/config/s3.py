"""The store that speaks S3, as the environment names it.

delta-rs reads the AWS_* variables by itself. Hadoop and pyarrow read the keys of AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY by themselves, and are told the rest here, so that a user says everything once.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow.fs

_REGION = "us-east-1"
"""What delta-rs takes when nobody names a region."""


@dataclass(frozen=True)
class Store:
    """Where requests go.

    Attributes:
        endpoint: the address of the store; None: that of Amazon for the region.
        region: the region that requests are signed for; None: the client finds it out.
        bucket_in_host: whether the bucket is part of the host's name, and not of the path.
    """

    endpoint: str | None
    region: str | None
    bucket_in_host: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Store":
        """The store of some environment variables, with the defaults of delta-rs."""
        endpoint = environment.get("AWS_ENDPOINT_URL") or environment.get("AWS_ENDPOINT")
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        hosted = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false").lower() == "true"
        return cls(endpoint, region or (_REGION if endpoint else None), hosted or endpoint is None)

    def hadoop(self) -> dict[str, str]:
        """The settings of Hadoop's connector, as Spark takes them."""
        options = {"endpoint": self.endpoint, "endpoint.region": self.region}
        known = {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items() if value}
        style = {} if self.bucket_in_host else {"spark.hadoop.fs.s3a.path.style.access": "true"}
        return known | style


@cache
def files() -> pyarrow.fs.S3FileSystem:
    """The store as a file system of pyarrow; a small file is put by one request, whole or not at all."""
    store = Store.of(os.environ)
    return pyarrow.fs.S3FileSystem(
        endpoint_override=store.endpoint,
        region=store.region,
        force_virtual_addressing=store.endpoint is not None and store.bucket_in_host,
        allow_delayed_open=True,
    )


def trouble(text: str, environment: Mapping[str, str]) -> str | None:
    """What to do about an error of a store, in one line; None when the text is no such error.

    Args:
        text: what delta-rs or pyarrow said, over many lines.
        environment: in which they looked for the store.
    """
    if not any(mark in text for mark in _OF_A_STORE):
        return None
    endpoint = Store.of(environment).endpoint
    where = "Amazon (AWS_ENDPOINT_URL is not set)" if endpoint is None else f"AWS_ENDPOINT_URL = {endpoint!r}"
    code, bucket = (re.search(rf"<{name}>(.+?)</{name}>", text) for name in ("Code", "BucketName"))
    for marks, meaning in _MEANINGS:
        if any(mark in text for mark in marks):
            named = "the bucket" if bucket is None else f"bucket {bucket[1]!r}"
            return f"{where}: {meaning.format(said=code[1] if code else marks[0], bucket=named)}"
    last = [line.strip(" \u21b3") for line in re.sub(r"\x1b\[\d*m", "", text).splitlines() if line.strip()]
    return f"{where}: {code[1] if code else last[-1]}"


_OF_A_STORE = ("Generic S3 error", "AWS Error", "Kernel error -> The operation lacked")
_MEANINGS = (
    (
        ("169.254.169.254", "Missing AccessKeyId", "Missing SecretAccessKey"),
        "no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (("URL scheme is not allowed",), "it is not encrypted; set AWS_ALLOW_HTTP=true if that is meant"),
    (("NoSuchBucket", "NO_SUCH_BUCKET"), "{bucket} is not there; make it"),
    (("PermanentRedirect", "AuthorizationHeaderMalformed"), "the bucket is in another region; set AWS_REGION"),
    (
        (
            *("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "403 Forbidden", "lacked"),
            *("INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "ACCESS_DENIED"),
        ),
        "refused ({said}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do",
    ),
    (("client error (Connect)", "error sending request", "NETWORK_CONNECTION"), "no answer; check the address"),
)
"""What errors say, and what that means; the first one counts."""

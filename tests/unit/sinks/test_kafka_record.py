"""A delivery as a record: what came from a broker is what it was there."""

from __future__ import annotations

import subprocess
import sys
from json import dumps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sinks.kafka import Header, headers_of, key_of


def row(key: str | None, *properties: tuple[str, str | None]) -> dict[str, Any]:
    """What a sink reads."""
    return {"message_key": key, "properties": list(properties) or None}


def test_a_key_is_decoded_while_it_is_the_one_that_came() -> None:
    """A profile may have made another key."""
    assert key_of(row("/v8=", ("delayline.key", "/v8="))) == b"\xfe\xff"
    assert key_of(row("mine", ("delayline.key", "/v8="))) == b"mine"
    assert key_of(row(None, ("delayline.key", "/v8="))) is None
    assert key_of(row("no base64", ("delayline.key", "no base64"))) == b"no base64"


def test_headers_that_came_are_all_there_and_others_follow() -> None:
    """A dead letter has properties more; what was noted of headers is no header."""
    headers = '[{"key":"a","value":"MQ=="},{"key":"a"},{"key":"b","value":"/w=="}]'
    found = headers_of(row("k", ("a", "1"), ("delayline.headers", headers), ("more", None), ("delayline.key", "x")))
    assert found == [("a", b"1"), ("a", None), ("b", b"\xff"), ("more", None)]


@pytest.mark.parametrize(
    "text",
    ["mine", "[1]", '[{"key":"a","value":"!"}]', "{}", '[{"key":"\\ud800"}]', '[{"key":1}]', '[{"key":"a","more":1}]',
     '[{"key":"a","value":null}]', '[{"key":"a","value":7}]', '[{"value":"MQ=="}]', "[" * 50_000, "9" * 5_000],
)  # fmt: skip
def test_a_note_that_somebody_else_wrote_is_a_property_like_any_other(text: str) -> None:
    """It does not end the sink, and nothing of it is lost."""
    found = headers_of(row("k", ("delayline.headers", text), ("a", "1")))
    assert found == [("delayline.headers", text.encode()), ("a", b"1")]


def test_names_of_headers_are_texts_that_the_client_takes() -> None:
    """It dies of a lone surrogate, and takes what stands behind a NUL for nothing."""
    found = headers_of(row("k", ("\ud800", "\ud800"), ("a\0b", "\0"), ("", "")))
    assert found == [("?", b"?"), ("a\ufffdb", b"\0"), ("", b"")]


TEXTS = st.lists(st.sampled_from("ab\0\ud800\udfff\uffff\u20ac"), max_size=3).map("".join)
"""With lone surrogates and NUL."""
WRONG = TEXTS | st.none() | st.integers()
NOTES = st.builds(
    dumps,
    st.lists(
        st.fixed_dictionaries({"key": TEXTS}, optional={"value": st.sampled_from(["MQ==", ""])})
        | st.dictionaries(st.sampled_from(["key", "value", "x"]), WRONG),
        max_size=3,
    ),
)
PROPERTIES = st.dictionaries(
    st.sampled_from(["delayline.headers", "delayline.key"]) | TEXTS, NOTES | TEXTS | st.none(), max_size=4
)
PRODUCE = """
import ast, sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
for key, headers in ast.literal_eval(sys.stdin.read()):
    producer.produce("t", b"", key, headers=headers)
print(len(producer) > 0)
producer.purge()
"""


def test_whatever_a_producer_writes_the_client_of_kafka_takes_it() -> None:
    """A fault of the C library ends the process of all sinks, again and again."""
    pytest.importorskip("confluent_kafka", reason="the client of Kafka is not installed (the extra `kafka`)")
    made = list[tuple[bytes | None, list[Header]]]()

    @settings(database=None)
    @given(key=TEXTS | st.none(), properties=PROPERTIES)
    def make(key: str | None, properties: dict[str, str | None]) -> None:
        record = row(key, *properties.items())
        made.append((key_of(record), headers_of(record)))

    make()
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", PRODUCE], input=ascii(made), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")

"""A delivery as a record: what came from a broker is what it was there."""

from __future__ import annotations

from typing import Any

from pipeline.sinks.kafka import headers_of, key_of


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
    told = '[{"key":"a","value":"MQ=="},{"key":"a"},{"key":"b","value":"/w=="}]'
    found = headers_of(row("k", ("a", "1"), ("delayline.headers", told), ("more", None), ("delayline.key", "x")))
    assert found == [("a", b"1"), ("a", None), ("b", b"\xff"), ("more", None)]


def test_a_note_that_somebody_else_wrote_is_passed_over() -> None:
    """It does not end the sink."""
    for text in ("mine", "[1]", '[{"key":"a","value":"!"}]', "{}"):
        assert headers_of(row("k", ("delayline.headers", text), ("a", "1")))[-1] == ("a", b"1")

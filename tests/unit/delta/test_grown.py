"""Optional columns that a table lacks get the place that their contract gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("delta", reason="tables are made by Spark")

from pipeline.delta.tables import grown
from schemas import IDENTITY, INBOX, SEGMENTS

CONTRACT = json.loads(SEGMENTS.schema.json())["fields"]
NAMES = SEGMENTS.schema.names


def described(*names: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a log holds
    """The `metaData` of a table with some columns of the contract, or others."""
    known = {each["name"]: each for each in CONTRACT}
    other = {"type": "string", "nullable": True, "metadata": {}}
    fields = [known.get(name, {"name": name, **other}) for name in names]
    return {"id": "x", "schemaString": json.dumps({"type": "struct", "fields": fields}), **more}


def fields_of(metadata: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The columns that it names."""
    assert metadata is not None
    fields: list[dict[str, Any]] = json.loads(metadata["schemaString"])["fields"]
    return fields


def test_a_table_that_has_all_columns_is_left_alone() -> None:
    """In whatever order, and whatever else it has."""
    assert grown(SEGMENTS, described(*NAMES)) is None
    assert grown(SEGMENTS, described("mine", *reversed(NAMES))) is None


def test_columns_come_where_the_contract_has_them() -> None:
    """Behind the one that is before them there; what somebody else added stays, and so does all that is not columns."""
    old = [name for name in NAMES if name not in ("redelivery_count", "round", "cause")]
    metadata = grown(SEGMENTS, described(*old, configuration={"a": "b"}))
    assert fields_of(metadata) == CONTRACT
    assert metadata is not None
    assert (metadata["id"], metadata["configuration"]) == ("x", {"a": "b"})
    place = old.index("batch_id") + 1
    wanted = [*old[:place], "redelivery_count", "round", "cause", "mine", *old[place:]]
    assert [
        each["name"] for each in fields_of(grown(SEGMENTS, described(*old[:place], "mine", *old[place:])))
    ] == wanted


def test_a_required_column_is_not_made_up() -> None:
    """Rows that are there have no value for it: the table is not what it should be, and its readers say so."""
    assert grown(SEGMENTS, described(*(name for name in NAMES if name != "kind"))) is None


def test_a_column_that_was_there_from_the_start_is_not_added_again() -> None:
    """Whoever renamed it would read NULL from then on, and nobody would say so."""
    fields = json.loads(INBOX.schema.json())["fields"]

    def lacking(*names: str) -> dict[str, Any]:
        text = json.dumps({"type": "struct", "fields": [each for each in fields if each["name"] not in names]})
        return {"id": "x", "schemaString": text}

    assert grown(INBOX, lacking("message_key")) is None
    found = [each["name"] for each in fields_of(grown(INBOX, lacking("message_key", *IDENTITY)))]
    assert found == [each["name"] for each in fields if each["name"] != "message_key"]

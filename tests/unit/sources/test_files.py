"""A folder of files as a source: what a profile may say of it."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.config.errors import BadSetting
from pipeline.config.sources import Source
from pipeline.sources.running import door_of

COLUMNS = "id STRING"


@pytest.mark.parametrize(
    ("address", "told", "field"),
    [
        ("json:/landing", {}, "columns"),
        ("json:/landing?header=true", {"columns": COLUMNS}, "from"),
        ("csv:/landing?separator=;", {"columns": COLUMNS}, "from"),
        ("parquet:/landing", {"columns": COLUMNS, "max_rows": 5}, "max_rows"),
        ("delta:/table", {"columns": COLUMNS}, "columns"),
        ("orc:/landing", {"columns": COLUMNS}, "from"),
        ("json:/landing", {"columns": COLUMNS, "admin": "http://h:8080"}, "admin"),
        ("pulsar://h:6650/a/b/c", {"admin": "h:8080"}, "admin"),
    ],
)
def test_what_a_folder_cannot_be_told_is_refused(address: str, told: dict[str, Any], field: str) -> None:
    """No option does nothing; the error names it as the profile does."""
    with pytest.raises(BadSetting) as refused:
        door_of(Source("a", address, **told))
    assert refused.value.field == f"source.a.{field}"


def test_a_folder_has_no_latest_place() -> None:
    """Spark's stream begins with the files that are there."""
    with pytest.raises(BadSetting) as refused:
        door_of(Source("a", "json:/landing", columns=COLUMNS, start="latest")).latest(None)  # type: ignore[arg-type] # not asked
    assert refused.value.field == "source.a.start"


def test_an_address_may_name_options_of_the_reader() -> None:
    """As Spark names them."""
    door_of(Source("a", "csv:/landing?header=true&sep=%3B&pathGlobFilter=*.csv", columns=COLUMNS))

"""Sources of a profile: what is known, what is refused, and by which name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.config.errors import BadSetting
from pipeline.config.profiles import read_profile
from pipeline.config.sources import Source, sources_of

ADDRESS = "kafka://localhost:9092/orders"


def test_a_profile_may_have_several_sources(tmp_path: Path) -> None:
    """Each has a name of its own, and what it does not say has a default."""
    profile = tmp_path / "p.toml"
    profile.write_text(
        f'[source.b]\nfrom = "{ADDRESS}"\ndeliver_at = "timestamp"\n[source.a]\nfrom = "delta:/t"\nstart = "latest"\n'
    )
    assert read_profile(profile).sources == (
        Source("a", "delta:/t", start="latest"),
        Source("b", ADDRESS, deliver_at="timestamp"),
    )


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"a": 1}, "source.a"),
        ({"a": {"from": ADDRESS, "deliver_in": "1"}}, "source.a.deliver_in"),
        ({"a": {"deliver_at": "now()"}}, "source.a.from"),
        ({"a": {"from": ADDRESS, "address": ADDRESS}}, "source.a.address"),
        ({"a": {"from": ADDRESS, "start": "middle"}}, "source.a.start"),
        ({"a": {"from": ADDRESS, "max_rows": 0}}, "source.a.max_rows"),
        ({"a": {"from": ADDRESS, "topic": " "}}, "source.a.topic"),
        ({"a": {"from": ADDRESS, "deliver_after_ms": 5}}, "source.a.deliver_after_ms"),
        ({"a b": {"from": ADDRESS}}, "source"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name_in_the_profile(section: dict[str, Any], field: str) -> None:
    """Before Spark starts."""
    with pytest.raises(BadSetting) as refused:
        sources_of(section)
    assert refused.value.field == field

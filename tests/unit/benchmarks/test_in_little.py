"""Benchmarks that need no JVM, each with a small size: they come to their end, and print their figures."""

from __future__ import annotations

from importlib import import_module

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")


@pytest.mark.parametrize(
    ("name", "sizes", "printed"),
    [
        ("forecast", "--messages 1000 --core 1000", ["core", "pending", "forecast"]),
        (
            "windows",
            "--messages 400 --rounds 1",
            ["no window", "zone of the topic", "zones of recipients", "0 outside"],
        ),
        ("recurring", "--schedules 20", ["core: 20 schedules", "plan: 20 schedules", "append: 20 schedules"]),
    ],
)
def test_a_benchmark_prints_its_figures(
    name: str, sizes: str, printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its cases, for people."""
    assert import_module(f"benchmarks.{name}").main(sizes.split()) == 0
    lines = capsys.readouterr().out
    assert [words for words in printed if words not in lines] == []

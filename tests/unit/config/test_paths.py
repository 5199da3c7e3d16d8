"""Paths: which lie in which folders, however they are spelled."""

from __future__ import annotations

import pytest

from pipeline.config.paths import within

BUCKET = ("s3://bucket/orders/", "abfss://box@store.dfs.core.windows.net/a")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("s3://bucket/orders/paid", "s3a://bucket/orders/paid"),
        ("s3a://bucket/orders", "s3a://bucket/orders"),
        ("abfss://box@store.dfs.core.windows.net/a/b", "abfss://box@store.dfs.core.windows.net/a/b"),
        ("s3://bucket/ordersmore/paid", None),
        ("s3://bucket/orders/../secret", None),
        ("s3://bucket/orders/./paid", None),
        ("s3://bucket/orders//paid", None),
        ("s3://bucket/orders/%2e%2e/secret", None),
        ("s3://bucket/orders\\\\..\\secret", None),
        ("s3://bucket/orders/.\t./secret", None),
        ("s3://bucket/orders/paid?version=1", None),
        ("s3://other/orders/paid", None),
        ("/bucket/orders/paid", None),
        ("/nul\0", None),
        ("s3a:bucket/orders/paid", None),
    ],
)
def test_an_address_lies_in_a_folder_when_it_can_be_read_in_one_way_only(path: str, found: str | None) -> None:
    """It is spelled as it is to be opened."""
    assert within(path, BUCKET) == found

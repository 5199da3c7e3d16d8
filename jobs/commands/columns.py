"""Rows in columns, for people."""

from collections.abc import Iterator, Sequence


def in_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line of heads, and a line for each row."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()

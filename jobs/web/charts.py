"""Bars as SVG, each picture with a title, a text that says the same, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from markupsafe import Markup

from pipeline.config.spelling import iso_text
from pipeline.insight.duecounts import DueCounts
from pipeline.storage.arrays import IntArray

_WIDTH, _HEIGHT, _FOOT = 720, 120, 18
_BARS = 96
"""So many can be told apart."""
_MARKS = 6
"""So many times stand below the bars."""


def due_chart(load: DueCounts, name: str, title: str) -> Markup:
    """How many messages are due in each span.

    Args:
        load: the spans.
        name: names the picture within its page.
        title: what it shows.
    """
    marks = [iso_text(at, "minutes") for at in load.starts]
    return bars(load.counts, marks, name, title)


def minutes_chart(minutes: IntArray, values: IntArray, name: str, title: str, *, at_end: bool = False) -> Markup:
    """Messages of minutes that follow each other, in as many bars as can be told apart.

    Args:
        minutes: their starts, ms UTC, shape (n,).
        values: messages of each, shape (n,).
        name: names the picture within its page.
        title: what it shows.
        at_end: a bar is what there is at the end of its span, and not the sum.
    """
    step = -(-len(minutes) // _BARS)
    starts = range(0, len(minutes), step)
    shown = [values[at : at + step] for at in starts]
    heights = [int(each[-1] if at_end else each.sum()) for each in shown]
    return bars(heights, [iso_text(int(minutes[at]), "minutes") for at in starts], name, title)


def bars(values: Sequence[int], marks: Sequence[str], name: str, title: str) -> Markup:
    """Values as bars from left to right, and as a table.

    Args:
        values: not negative.
        marks: what each of them is of; as many.
        name: names the picture within its page.
        title: what it shows.
    """
    most = max(values, default=0)
    text = _in_words(values, marks)
    parts = [
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>',
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _FOOT}" role="img" aria-labelledby="{name}-title {name}-text">',
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(text)}</desc>',
        *_bars(values, marks, most),
        f'<line class="axis" x1="0" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}"></line>',
        *_feet(marks),
        f"</svg><details><summary>{escape(text)}</summary>",
        *_table(values, marks),
        "</details></figure>",
    ]
    return Markup("".join(parts))  # noqa: S704 - what is not a number is escaped above


def _bars(values: Sequence[int], marks: Sequence[str], most: int) -> Iterator[str]:
    width = _WIDTH / max(1, len(values))
    for number, value in enumerate(values):
        if value:
            height = max(1.0, value / most * (_HEIGHT - 8))
            yield (
                f'<rect class="bar" x="{number * width:.2f}" y="{_HEIGHT - height:.2f}" '
                f'width="{max(0.5, width - 1):.2f}" height="{height:.2f}">'
                f"<title>{escape(marks[number])}: {value:,}</title></rect>"
            )


def _feet(marks: Sequence[str]) -> Iterator[str]:
    step = max(1, len(marks) // _MARKS)
    for number in range(0, len(marks), step):
        at = number * _WIDTH / max(1, len(marks))
        yield f'<text class="mark" x="{at:.1f}" y="{_HEIGHT + 13}">{escape(_short(marks[number]))}</text>'


def _short(mark: str) -> str:
    """The day and the time of day of an ISO time."""
    return mark[5:16].replace("T", " ")


def _table(values: Sequence[int], marks: Sequence[str]) -> Iterator[str]:
    yield "<table><thead><tr><th>Time</th><th>Messages</th></tr></thead><tbody>"
    for mark, value in zip(marks, values, strict=True):
        if value:
            yield f'<tr><td>{escape(mark)}</td><td class="number">{value:,}</td></tr>'
    yield "</tbody></table>"


def _in_words(values: Sequence[int], marks: Sequence[str]) -> str:
    total = sum(values)
    if not total:
        return "Nothing."
    number = max(range(len(values)), key=values.__getitem__)
    return f"{total:,} messages; most, {values[number]:,}, at {marks[number]}."

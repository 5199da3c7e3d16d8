"""Any way of cutting the same adds and pops into calls gives the same output."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from state import TimeBucketIndex, encode_chunk
from tests.support.index_model import (
    SPANS,
    IndexModel,
    Message,
    Pending,
    Rule,
    batches,
    columns_of,
    popped,
    popped_runs,
)

START = 1_700_000_000_000
FINER = {1: (1,), 1_000: (1, 100, 1_000), 60_000: (1, 1_000, 60_000)}
"""Ticks whose chunks give an index of this tick the same keys: up of up nests."""

Step = list[Message] | int
"""Messages to add, or the time of a pop."""


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Adds and pops in turn, the pops at any time."""
    span = draw(st.sampled_from(SPANS))
    times = st.integers(START, START + span + 70_000)
    steps: list[Step] = draw(st.lists(st.one_of(batches(START, span), times), max_size=10))
    return [*steps, START + span + 70_000]


def whole(steps: list[Step], rule: Rule) -> list[list[Pending]]:
    """What the program gives: one list a pop, from the model."""
    model = IndexModel(rule)
    output = []
    for step in steps:
        if isinstance(step, int):
            output.append(model.pop(step))
        else:
            model.add(step)
    return output


def add_cut(index: TimeBucketIndex, messages: list[Message], data: st.DataObject) -> None:
    """Add messages in groups, each by a door of its own; a group may be empty."""
    rule = index.rule
    edges = sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=4), label="cuts"))
    ticks = FINER[rule.tick_ms] if rule.strict else (rule.tick_ms,)
    for first, last in zip([0, *edges], [*edges, len(messages)], strict=True):
        group = messages[first:last]
        door = data.draw(st.sampled_from(["add", "add_one", "chunk", "chunks"]), label="door")
        if door == "add":
            index.add(*columns_of(group))
        elif door == "add_one":
            for message in group:
                index.add_one(*message)
        else:
            tick = data.draw(st.sampled_from(ticks), label="tick")
            parts = [group] if door == "chunk" else [group[::2], group[1::2]]
            for part in parts:
                index.append_chunk(encode_chunk(*columns_of(part), tick, rule.strict))


def pop_cut(index: TimeBucketIndex, now: int, data: st.DataObject) -> tuple[TimeBucketIndex, list[Pending]]:
    """Pop in parts, with restarts and compactions in between."""
    output: list[Pending] = []
    for limit in data.draw(st.lists(st.integers(0, 40), max_size=4), label="limits"):
        output += popped(index.pop_due(now, limit))
        between = data.draw(st.sampled_from(["nothing", "nothing", "restart", "compact"]), label="between")
        if between == "restart":
            index = TimeBucketIndex.from_bytes(index.to_bytes())
        elif between == "compact":
            index.compact()
    rest = data.draw(st.sampled_from(["whole", "runs", "many"]), label="rest")
    if rest == "whole":
        output += popped(index.pop_due(now))
    elif rest == "runs":
        output += popped_runs(index.pop_due_runs(now))
    else:
        output += popped(index.pop_due(now, 10**6))
    index.check_invariants()
    return index, output


@given(
    steps=programs(),
    tick=st.sampled_from(sorted(FINER)),
    strict=st.sampled_from([True, True, False]),
    max_chunks=st.sampled_from([1, 2, 3, 32]),
    block_rows=st.sampled_from([2, 8_192]),
    data=st.data(),
)
def test_any_way_of_cutting_adds_and_pops_into_calls_gives_the_same_output(
    steps: list[Step], tick: int, *, strict: bool, max_chunks: int, block_rows: int, data: st.DataObject
) -> None:
    """Groups by three doors and finer ticks, pops by limits, restarts, few chunks, small blocks: one output."""
    output = []
    with patch("state.blocks.BLOCK_ROWS", block_rows):
        index = TimeBucketIndex(tick, strict, max_chunks)
        for step in steps:
            if isinstance(step, int):
                index, popped_now = pop_cut(index, step, data)
                output.append(popped_now)
            else:
                add_cut(index, step, data)
    assert output == whole(steps, Rule(tick, strict))
    assert len(index) == 0


@given(steps=programs(), tick=st.sampled_from(sorted(FINER)), data=st.data())
def test_the_order_of_adds_before_a_pop_does_not_matter(steps: list[Step], tick: int, data: st.DataObject) -> None:
    """The same messages shuffled between two pops come out alike."""
    index = TimeBucketIndex(tick)
    output = []
    waiting: list[Message] = []
    for step in steps:
        if isinstance(step, int):
            add_cut(index, data.draw(st.permutations(waiting)), data)
            waiting = []
            output.append(popped(index.pop_due(step)))
        else:
            waiting += step
    assert output == whole(steps, Rule(tick, strict=True))


@given(
    messages=batches(START, 200_000),
    nows=st.lists(st.integers(START - 10, START + 300_000), max_size=5),
    tick=st.sampled_from([1, 1_000, 60_000]),
    strict=st.booleans(),
)
def test_popping_on_the_way_gives_what_one_pop_at_the_end_gives(
    messages: list[Message], nows: list[int], tick: int, *, strict: bool
) -> None:
    """The outputs of pops at any times, one after the other in time, are the output of the last one alone."""
    step_by_step, at_once = TimeBucketIndex(tick, strict), TimeBucketIndex(tick, strict)
    step_by_step.add(*columns_of(messages))
    at_once.add(*columns_of(messages))
    last = START + 300_000
    output = [item for now in [*sorted(nows), last] for item in popped(step_by_step.pop_due(now))]
    assert output == popped(at_once.pop_due(last))

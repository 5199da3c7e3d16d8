"""Messages that failed and wait to come again: which they are, in which round, and when each is due.

`cursors` says what waits for a subscription, and rows of kind `retry` in `segments` say when; a position is in one row
for each of its rounds.
"""

from __future__ import annotations

from collections import defaultdict

from deltalake import DeltaTable

from pipeline.client.commanding.inforce import Chosen, has
from pipeline.delta.deltars import open_table, query, quoted
from pipeline.subscriptions.cursors import NEWEST, by_name
from pipeline.subscriptions.incarnations import Incarnation, Name
from schemas import CURSORS, ROUND, SEGMENTS
from state import Condition
from state.chunk import Chunk
from state.positionset import PositionSet
from state.runs import Runs
from state.withdrawals import Round

_Numbers = tuple[int, int]
"""Redelivery count and round."""
_RETRIES = """
    SELECT redelivery_count, {round} AS round, chunk FROM segments WHERE kind = 'retry' AND topic = {topic}
    AND subscriptions[1]['name'] = {subscription} AND subscriptions[1]['life'] = {life}
"""


def waiting(root: str, name: Name, life: Incarnation) -> list[Chosen]:
    """What waits to come again for a subscription in its present life, as settle knew it last.

    It was delivered before: what waits for its first delivery is in `messages`.

    Raises:
        NoWarehouse: the folder lacks a table.
        CorruptBytes: a row of `cursors` or of `segments` cannot be read.
    """
    known = by_name(query(NEWEST.format(rows="t"), t=open_table(root, CURSORS))).get(name)
    if known is None or known.life != life.number:
        return []
    waits: dict[_Numbers, PositionSet] = {}
    for held in known.outstanding().held(Condition.WAITING):
        numbers = held.cell.redelivery_count, held.cell.round
        if numbers[0]:
            waits[numbers] = waits.get(numbers, PositionSet()) | PositionSet.of(held.positions)
    if not waits:
        return []
    runs = _retries(open_table(root, SEGMENTS), name, life)
    found = [
        Chosen.of_runs(Round(*name, life.number, count), [(number, Runs.concat(runs[count, number]))]).only(positions)
        for (count, number), positions in sorted(waits.items())
        if (count, number) in runs
    ]
    return [each for each in found if len(each.ledgers)]


def _retries(segments: DeltaTable, name: Name, life: Incarnation) -> dict[_Numbers, list[Runs]]:
    """What was put into the index for a subscription, by redelivery count and round."""
    topic, subscription = map(quoted, name)
    number = ROUND if has(segments, "round") else "redelivery_count"
    text = _RETRIES.format(topic=topic, subscription=subscription, life=life.number, round=number)
    runs: dict[_Numbers, list[Runs]] = defaultdict(list)
    for row in query(text, segments=segments):
        runs[row["redelivery_count"], row["round"]].append(Chunk.from_bytes(row["chunk"]).runs())
    return runs

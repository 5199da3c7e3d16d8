"""Messages that failed and wait to come again: which they are, in which round, and when each is due.

`cursors` says what waits for a subscription, and rows of kind `retry` in `segments` say when; a position is in one row
for each of its rounds.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from pipeline.client.commanding.chosen import Chosen
from pipeline.delta.deltars import open_table, query, quoted
from pipeline.subscriptions.cursors import NEWEST, by_name
from pipeline.subscriptions.incarnations import Incarnation, Name
from schemas import CURSORS, SEGMENTS
from state import Condition
from state.chunk import Chunk
from state.positionset import PositionSet
from state.runs import Runs
from state.withdrawals import Round

_RETRIES = """
    SELECT redelivery_count, chunk FROM segments WHERE kind = 'retry' AND topic = {topic}
    AND subscriptions[1]['name'] = {subscription} AND subscriptions[1]['life'] = {life}
"""


def waiting(root: str, name: Name, life: Incarnation) -> list[Chosen]:
    """What waits to come again for a subscription in its present life, by round; as settle knew it last.

    Raises:
        NoWarehouse: the folder lacks a table.
        CorruptBytes: a row of `cursors` or of `segments` cannot be read.
    """
    known = by_name(query(NEWEST.format(told="t"), t=open_table(root, CURSORS))).get(name)
    if known is None or known.life != life.number:
        return []
    rounds: dict[int, list[PositionSet]] = defaultdict(list)
    for held in known.outstanding().held(Condition.WAITING):
        rounds[held.cell.round].append(PositionSet.of(held.positions))
    if not rounds:
        return []
    topic, subscription = map(quoted, name)
    text, runs = (
        _RETRIES.format(topic=topic, subscription=subscription, life=life.number),
        defaultdict[int, list[Runs]](list),
    )
    for row in query(text, segments=open_table(root, SEGMENTS)):
        runs[row["redelivery_count"]].append(Chunk.from_bytes(row["chunk"]).runs())
    found = [
        _chosen(Round(*name, life.number, number), Runs.concat(parts)).only(PositionSet.union(rounds[number]))
        for number, parts in sorted(runs.items())
        if number in rounds
    ]
    return [each for each in found if len(each.ledgers)]


def _chosen(of: Round, runs: Runs) -> Chosen:
    due = runs.expanded()
    order = np.lexsort((due.entry_ids, due.ledger_ids))
    return Chosen(of, due.ledger_ids[order], due.entry_ids[order], due.due[order])

"""What `delayline pending` counts while the job runs, against SQL over the tables."""

from __future__ import annotations

from pipeline.client.insight.pending import pending
from pipeline.delta import deltars
from schemas import DELIVERIES, MESSAGES
from tests.support.stream import World, advance, append, check, message, subscribe
from tests.support.worlds import Play

T0 = 1_700_000_000_000
HOUR = 3_600_000

LEFT_OVER = """
    SELECT s.name, COUNT(*) AS count, MIN(m.due_time) AS next_due
    FROM messages m CROSS JOIN (VALUES ('early', 'earliest'), ('late', 'latest')) AS s(name, start)
    LEFT ANTI JOIN deliveries d
    ON d.subscription = s.name AND d.ledger_id = m.ledger_id AND d.entry_id = m.entry_id
    WHERE m.topic = 't' AND (s.start = 'earliest' OR CAST(m.payload AS VARCHAR) >= 'late')
    GROUP BY s.name ORDER BY s.name
"""


def sql(world: World) -> list[tuple[str, int, int]]:
    """What every subscription has still to get, by position."""
    tables = {table.name: deltars.open_table(world.warehouse.root, table) for table in (MESSAGES, DELIVERIES)}
    rows = deltars.query(LEFT_OVER, **tables)
    return [(row["name"], row["count"], round(row["next_due"].timestamp() * 1_000)) for row in rows]


def test_pending_agrees_with_sql_over_the_tables_at_every_step(play: Play) -> None:
    """Near, parked, released and late: the count from three narrow columns is that of the join of positions."""
    counts: list[list[int]] = []

    def agree(world: World) -> None:
        found = [(each.subscription, each.count, each.next_due) for each in pending(world.warehouse.root).backlogs]
        assert [each for each in found if each[1]] == sql(world)
        counts.append([count for _, count, _ in found])

    play(
        [
            subscribe("t", "early", start="earliest"),
            append(*(message(f"a{i}", after=i * 1_000) for i in range(5)), message("a", after=9 * HOUR)),
            append(message("elsewhere", topic="u", after=1)),
            advance(T0),
            check(agree),
            subscribe("t", "late"),
            append(message("late 1", after=10 * HOUR), message("late 2", after=0)),
            advance(T0 + 2_500),
            check(agree),
            advance(T0 + HOUR),
            check(agree),
            advance(T0 + 11 * HOUR),
            check(agree),
        ],
    )
    assert counts == [[5], [4, 1], [2, 1], [0, 0]]

"""Which inbox rows are accepted, why others are not, and when they are due."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="a batch has modules of Spark beside it")

from pipeline.config import zones
from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.config.zones import RULES, OtherRules
from pipeline.config.zones import zone as zone_of
from pipeline.ingest.accept_local import numbered
from pipeline.ingest.core.rules import classify, message_columns
from pipeline.ingest.core.terms import Terms, ledgers
from pipeline.storage.gather import Gathered
from pipeline.storage.texts import wrong_texts
from pipeline.subscriptions.lines import NO_POLICIES, Topics
from pipeline.subscriptions.records import REFUSED_MS
from pipeline.subscriptions.topicpolicies import TopicPolicies
from pipeline.subscriptions.windows import zone_named
from schemas import INBOX
from state import proportional_deliver_at, tick_bits
from state.buckets import MAX_TIME
from state.units import Ms
from state.windows import place_hashes
from tests.support.inboxrows import FINE, POLICIES, TICKS, inbox_rows
from tests.support.rows import T0
from tests.support.strangers import table_of

US = 1_000
TERMS = Terms(now=Ms(T0), max_delay_ms=10_000, max_payload_bytes=4)
YEAR_1900 = -2_208_988_800_000
Verdict = tuple[int, int | None, int, str | None]


def look(rows: list[dict[str, Any]], terms: Terms = TERMS) -> list[Verdict]:
    """What acceptance says about rows: publication, delivery, due time, reason."""
    seen = classify(numbered(Gathered.of(INBOX, table_of(INBOX, rows)), terms), terms)
    names = ("published_ms", "deliver_ms", "due_ms", "reason")
    return list(zip(*(seen.column(name).to_pylist() for name in names), strict=True))


def sent(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a topic."""
    return [{"topic": "t"} | row for row in rows]


def test_a_message_is_due_at_the_later_of_delivery_and_publication() -> None:
    """Without a time it is due now; a duration counts from the publication that is stated; 1900 is simply due."""
    rows: list[dict[str, Any]] = [
        {},
        {"deliver_at": (T0 + 5) * US},
        {"deliver_after_ms": 7},
        {"deliver_after_ms": 0, "publish_time": (T0 + 3) * US},
        {"deliver_after_ms": 9, "publish_time": (T0 - 5) * US},
        {"deliver_at": (T0 - 9) * US, "publish_time": (T0 - 2) * US},
        {"deliver_at": YEAR_1900 * US},
        {"deliver_at": YEAR_1900 * US, "publish_time": YEAR_1900 * US},
    ]
    assert look(sent(*rows)) == [
        (T0, None, T0, None),
        (T0, T0 + 5, T0 + 5, None),
        (T0, T0 + 7, T0 + 7, None),
        (T0 + 3, T0 + 3, T0 + 3, None),
        (T0 - 5, T0 + 4, T0 + 4, None),
        (T0 - 2, T0 - 9, T0 - 2, None),
        (T0, YEAR_1900, T0, None),
        (YEAR_1900, YEAR_1900, 0, None),
    ]


def test_microseconds_are_rounded_up() -> None:
    """A microsecond after a millisecond is the next millisecond: rounding down would deliver early, before 1970 too."""
    rows: list[dict[str, Any]] = [
        {"deliver_at": T0 * US + 1},
        {"deliver_at": T0 * US + 999},
        {"deliver_at": T0 * US + 1_000},
        {"publish_time": T0 * US + 1},
        {"publish_time": -1_999, "deliver_at": -1_001},
    ]
    assert look(sent(*rows)) == [
        (T0, T0 + 1, T0 + 1, None),
        (T0, T0 + 1, T0 + 1, None),
        (T0, T0 + 1, T0 + 1, None),
        (T0 + 1, None, T0 + 1, None),
        (-1, -1, 0, None),
    ]


@pytest.mark.parametrize(
    ("reason", "good", "bad"),
    [
        (
            "refused_by_source",
            [{}],
            [{"deliver_after_ms": REFUSED_MS, "topic": topic} for topic in ("t", None)],
        ),
        ("missing_topic", [{"topic": "t"}], [{"topic": None}, {"topic": ""}, {"topic": "  "}]),
        (
            "deliver_at_and_deliver_after",
            [{"deliver_at": T0 * US}, {"deliver_after_ms": 1}],
            [{"deliver_at": T0 * US, "deliver_after_ms": 1}],
        ),
        ("negative_delay", [{"deliver_after_ms": 0}], [{"deliver_after_ms": -1}, {"deliver_after_ms": -(2**63)}]),
        (
            "time_out_of_range",
            [{"publish_time": FIRST_INSTANT_MS * US}, {"deliver_at": FIRST_INSTANT_MS * US}],
            [
                {"deliver_at": (FIRST_INSTANT_MS - 1) * US},
                {"publish_time": (FIRST_INSTANT_MS - 1) * US},
                {"deliver_at": LAST_INSTANT_MS * US + 1},
                {"publish_time": -(2**63) + 1, "deliver_at": 2**63 - 1},
            ],
        ),
        (
            "max_delay_exceeded",
            [{"deliver_at": (T0 + 10_000) * US}, {"deliver_after_ms": 10_000}],
            [
                {"deliver_at": (T0 + 10_000) * US + 1},
                {"deliver_after_ms": 10_001},
                {"deliver_after_ms": 2**63 - 1},
                {"deliver_at": (T0 + 1) * US, "publish_time": (T0 - 10_000) * US},
            ],
        ),
        (
            "published_in_future",
            [{"publish_time": (T0 + 10_000) * US}],
            [{"publish_time": (T0 + 10_001) * US}, {"publish_time": LAST_INSTANT_MS * US}],
        ),
        ("payload_too_large", [{"payload": b"1234"}, {"payload": None}], [{"payload": b"12345"}]),
    ],
)
def test_each_rule_of_acceptance_has_its_limit(
    reason: str, good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    """What stands at the limit is accepted, what is one past it is refused with the reason."""
    reasons = [said[-1] for said in look(sent(*good, *bad))]
    assert reasons == [*[None] * len(good), *[reason] * len(bad)]


def test_a_topic_that_is_no_text_is_refused() -> None:
    """Spark lets bytes pass for a text; nobody could subscribe to it, and Python cannot read it."""
    broken = ("FF41", "EDA080", "C0AF", "F4908080")
    assert {seen[-1] for seen in look([{"topic": bytes.fromhex(each)} for each in broken])} == {"topic_not_utf8"}


def _policies(row: dict[str, Any], terms: Terms) -> TopicPolicies:
    return terms.topics.of((row["topic"] or b"").decode(errors="surrogateescape"))


def _up(micros: int | None) -> int | None:
    return None if micros is None else -(-micros // US)


def _times(row: dict[str, Any], number: int, terms: Terms) -> tuple[int, int | None, int]:
    """Publication, delivery, and the delay that was asked for."""
    policies = _policies(row, terms)
    at, after = _up(row["deliver_at"]), row["deliver_after_ms"]
    published = terms.now if row["publish_time"] is None else -(-row["publish_time"] // US)
    if policies.fixed_delay_ms is not None:
        at = after = None
    deliver = at
    if at is None and after is not None and 0 <= after <= LAST_INSTANT_MS:
        deliver = published + after
    delay = max(deliver - published, 0) if deliver is not None else 0
    if policies.floor_ms is not None:
        deliver = max(published + policies.floor_ms, published if deliver is None else deliver)
    if policies.proportional and deliver is not None:
        deliver = int(proportional_deliver_at(np.array([deliver]), np.array([published]))[0])
    deliver = _within_window(row, number, published, deliver, terms)
    return published, deliver, delay if after is None else after


def _within_window(row: dict[str, Any], number: int, published: int, deliver: int | None, terms: Terms) -> int | None:
    opening = _policies(row, terms).opening
    if opening is None:
        return deliver
    due = min(max(0, terms.now, published, published if deliver is None else deliver), MAX_TIME)
    name = opening.zone.property
    zone = None if name is None else zone_named((row["properties"] or {}).get(name.encode()) or b"")
    place = place_hashes(np.array([terms.first_ledger]), np.array([number]))
    bits = tick_bits(terms.ticks.get((row["topic"] or b"").decode(), 1))
    spread = opening.spread_ms
    (then,) = opening.window.put_off(np.array([due]), zone or zone_of(opening.zone.own), place, spread, bits).tolist()
    return then if then > due else deliver


def plain(row: dict[str, Any], number: int, wrong: str | None, terms: Terms) -> Verdict:
    """The same for one row, in words of Python."""
    published, deliver, delay = _times(row, number, terms)
    own = _policies(row, terms).max_delay_ms
    ends = [published] if deliver is None else [published, deliver]
    broken = {
        "refused_by_source": row["deliver_after_ms"] == REFUSED_MS,
        wrong: wrong is not None,
        "missing_topic": not (row["topic"] or b"").strip(b" "),
        "deliver_at_and_deliver_after": None not in (row["deliver_at"], row["deliver_after_ms"]),
        "negative_delay": (row["deliver_after_ms"] or 0) < 0,
        "time_out_of_range": min(ends) < FIRST_INSTANT_MS or max(ends) > LAST_INSTANT_MS,
        "max_delay_exceeded": delay > min(terms.max_delay_ms, LAST_INSTANT_MS if own is None else own),
        "published_in_future": published - terms.now > terms.max_delay_ms,
        "payload_too_large": len(row["payload"] or b"") > terms.max_payload_bytes,
    }
    return published, deliver, max(*ends, 0), next((name for name, holds in broken.items() if holds), None)


terms_of_batches = st.sampled_from(
    (
        TERMS,
        Terms(Ms(1), LAST_INSTANT_MS, 0),
        Terms(Ms(LAST_INSTANT_MS), 0, 5),
        Terms(Ms(T0), 10_000, 4, POLICIES, TICKS, first_ledger=7),
    )
)


@given(terms_of_batches, st.lists(inbox_rows, min_size=1, max_size=40))
def test_any_rows_are_judged_as_each_of_them_alone(terms: Terms, rows: list[dict[str, Any]]) -> None:
    """Hostile times and delays, topics that are no text, and limits at their edges."""
    wrong = wrong_texts(table_of(INBOX, rows)).to_pylist()
    assert look(rows, terms) == [plain(*each, terms) for each in zip(rows, range(len(rows)), wrong, strict=True)]


def test_a_window_is_not_looked_at_by_other_rules_of_zones_than_those_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An executor with another tzdata would find other due times than were counted, and give one position twice."""
    sent_there = pickle.dumps(replace(TERMS, topics=POLICIES))
    monkeypatch.setattr(zones, "RULES", "1999a")
    terms = pickle.loads(sent_there)  # noqa: S301 - as executors get them
    with pytest.raises(OtherRules) as refused:
        look(sent({"topic": "v"}), terms)
    assert (refused.value.field, refused.value.value) == ("tzdata", "1999a")
    assert refused.value.allowed.startswith(RULES)
    assert len(look(sent({"topic": "u"}), terms)) == 1


ONE = Topics({"t": TopicPolicies(fixed_delay_ms=7_000)})
FLOOR = Topics({"t": TopicPolicies(min_delay_ms=5), "u": TopicPolicies(min_delay_ms=10_001)})


@pytest.mark.parametrize("policies", [POLICIES, ONE, FLOOR, NO_POLICIES])
def test_rows_of_topics_with_policies_are_judged_as_each_of_them_alone(policies: Topics) -> None:
    """Each topic with each way to ask for a time: before, at and behind what its policies allow."""
    terms = Terms(Ms(T0), 10_000, 4, policies)
    near = [None, *(T0 + each for each in (-10_000, 0, 4, 5, 6_999, 7_000, 7_001, 9_999, 10_000, 10_001))]
    rows = [
        FINE | {"topic": topic.encode(), name: value, "publish_time": published}
        for topic in ("t", "u", "z", "w", "v", "\u00e9", "\u00e9-partition-12", "\U0001f600", "of nobody")
        for published in (None, (T0 - 3) * US, (T0 + 2) * US)
        for time in near
        for name, value in (
            ("deliver_at", None if time is None else time * US),
            ("deliver_after_ms", None if time is None else time - T0),
        )
    ]
    assert look(rows, terms) == [plain(row, number, None, terms) for number, row in enumerate(rows)]


@pytest.mark.parametrize(("count", "taken"), [(0, 0), (1, 1), (4, 1), (5, 2), (99, 25)])
def test_a_batch_takes_the_ledgers_that_it_fills(count: int, taken: int) -> None:
    """The next batch starts behind them."""
    assert ledgers(count, 4) == taken


def test_positions_go_on_in_the_ledgers_of_the_batch() -> None:
    """Rows are numbered from any place on; a full ledger is followed by the next."""
    terms = replace(TERMS, first_ledger=7, entries=3, batch_id=9, load_until=T0 + 60)
    inbox = Gathered.of(INBOX, table_of(INBOX, sent(*[{"deliver_after_ms": 20 * n} for n in range(5)])))
    rows = classify(inbox.rows, terms)
    made = {name: column.to_pylist() for name, column in message_columns(rows, 2, terms).items()}
    assert list(zip(made["ledger_id"], made["entry_id"], strict=True)) == [(7, 2), (8, 0), (8, 1), (8, 2), (9, 0)]
    assert made["parked"] == [False, False, False, True, True]
    assert made["batch_id"] == [9] * 5

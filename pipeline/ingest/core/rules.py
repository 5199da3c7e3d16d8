"""Ingest, row by row: what is accepted, when it is due, and which position it gets. Each rule is a function of columns.

`pipeline.ingest.accept_local` applies the rules in this process, `pipeline.ingest.accept_spark` on executors. A rule of
times may read the columns of the rules before it, a rule of refusal all of them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.config.zones import check_rules
from pipeline.ingest.core.terms import Terms
from pipeline.storage.arrays import IntArray, first_reason, longs, ordered, ranks
from pipeline.storage.texts import PAYLOAD_BYTES, WRONG_TEXT
from pipeline.subscriptions.records import REFUSED_MS
from pipeline.subscriptions.windows import TopicWindow, are_unknown
from schemas import DUPLICATE_PENDING
from state import proportional_deliver_at, tick_bits
from state.buckets import MAX_TIME
from state.windows import place_hashes

Rule: TypeAlias = Callable[[pa.Table, Terms], pa.ChunkedArray]
"""A column that follows from others, and from the terms of the batch."""
_FIXED, _PROPORTIONAL = "fixed_delay_ms", "proportional"
ROW = "row"
"""The column with the number of a row in the order of arrival."""
UNKNOWN_ZONE = "unknown_zone"
"""The column that says whether a row names a recipient's zone that is none."""
REPLACING = "replacing"
"""The column that says whether a row asks to replace others, by a property. Rows that Spark asks about have it."""
BOUND, LATEST, DUPLICATE = "bound_ms", "latest_ms", "duplicate"
"""Columns that say what follows from messages with the same key that wait (`core.uniqueness`): when a row is due at the
latest, to when one that replaces it may be put off, and whether it is refused. They may be missing."""
CODED = "coded topic"
"""The column with topics as numbers into a dictionary of their bytes. It may be missing: each rule codes them then."""
ZONE = "zone in "
"""Columns with names of recipients' zones are called this and their property; windows look at them."""
_LONG = pa.int64()
_NO_TIME, _NO_TEXT = pa.scalar(None, _LONG), pa.scalar(None, pa.string())


def _long(value: int) -> pa.Scalar:
    return pa.scalar(value, _LONG)


def _ceil(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """A column of times in ms, rounded up: a timestamp has microseconds."""
    times = rows.column(column).cast(_LONG)
    micros = times.fill_null(0).to_numpy()
    return pc.if_else(pc.is_valid(times), pa.array(micros // 1_000 + (micros % 1_000 > 0), _LONG), _NO_TIME)


def _is_stated(terms: Terms, *names: str) -> bool:
    """Whether a topic has one of some policies; what nobody asks for shall cost nothing."""
    return any(getattr(each, name) is not None for each in terms.topics.policies.values() for name in names)


def _policy(rows: pa.Table, terms: Terms, name: str) -> pa.Array:
    """What the policy of a name says to the topic of each row; NULL where there is none. Asked once for each topic."""
    if not _is_stated(terms, name):
        return pa.nulls(rows.num_rows, _LONG)
    topics = _coded(rows)
    names = (
        topic if topic is None else topic.decode(errors="surrogateescape") for topic in topics.dictionary.to_pylist()
    )
    values = [None if topic is None else getattr(terms.topics.of(topic), name) for topic in names]
    return pa.array(values, _LONG).take(topics.indices)


def _asked(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """The time asked for. A delay counts from when the sender says that it sent, else from the instant of the batch."""
    after = rows.column("deliver_after_ms")
    allowed = pc.and_(pc.greater_equal(after, 0), pc.less_equal(after, LAST_INSTANT_MS))
    ends = pc.add(rows.column("published_ms"), pc.if_else(allowed, after, _NO_TIME))
    asked = pc.coalesce(_ceil(rows, "deliver_at"), ends)
    if not _is_stated(terms, _FIXED):
        return asked
    return pc.if_else(pc.is_null(_policy(rows, terms, _FIXED)), asked, _NO_TIME)


def _planned(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """Not before the topic allows it, and no more precise than it asks for; but not put off for ever."""
    asked, published = rows.column("asked_ms"), rows.column("published_ms")
    if not _is_stated(terms, "floor_ms", _PROPORTIONAL):
        return _bounded(rows, asked)
    deliver = pc.max_element_wise(asked, pc.add(published, _policy(rows, terms, "floor_ms")))
    trimmed = pc.is_valid(_policy(rows, terms, _PROPORTIONAL))
    if not pc.any(trimmed).as_py():
        return _bounded(rows, deliver)
    rounded = proportional_deliver_at(deliver.fill_null(0).to_numpy(), published.to_numpy())
    return _bounded(rows, pc.if_else(pc.and_(trimmed, pc.is_valid(deliver)), pa.array(rounded), deliver))


def _bounded(rows: pa.Table, deliver: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times, but not after the latest one; what has none, since it is due at once, keeps none."""
    if BOUND not in rows.column_names:
        return deliver
    return pc.if_else(pc.is_valid(deliver), pc.min_element_wise(deliver, rows.column(BOUND)), deliver)


def windowed(rows: pa.Table, terms: Terms) -> Iterator[tuple[str, TopicWindow, IntArray]]:
    """The topics of rows that have a window, with the numbers of their rows.

    Raises:
        OtherRules: there is one, and this process has other rules of time zones than the terms.
    """
    if not terms.topics.windows:
        return
    topics = _coded(rows)
    indices = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for number, name in enumerate(topics.dictionary.to_pylist()):
        topic = name.decode(errors="surrogateescape")
        opening = terms.topics.of(topic).opening
        if opening is not None:
            check_rules(terms.rules)
            yield topic, opening, np.flatnonzero(indices == number)


def _asks_recipients(terms: Terms) -> bool:
    return any(each.zone.property is not None for each in terms.topics.windows)


def recipients(rows: pa.Table, terms: Terms) -> dict[str, IntArray]:
    """The properties that have zones of recipients, with the numbers of the rows of whose topics that is so."""
    found: dict[str, list[IntArray]] = {}
    for _, opening, here in windowed(rows, terms) if _asks_recipients(terms) else ():
        if opening.zone.property is not None:
            found.setdefault(opening.zone.property, []).append(here)
    return {name: each[0] if len(each) == 1 else np.sort(np.concatenate(each)) for name, each in found.items()}


def _zones(rows: pa.Table, opening: TopicWindow, here: IntArray) -> pa.ChunkedArray | None:
    if opening.zone.property is None:
        return None
    zones = rows.column(ZONE + opening.zone.property)
    return zones if len(here) == rows.num_rows else zones.take(pa.array(here))


def _deliver(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """While the window of the topic is open; what would be due at once waits for it, too."""
    planned, moved = rows.column("planned_ms"), np.full(rows.num_rows, -1)
    for topic, opening, here in windowed(rows, terms):
        due = pc.max_element_wise(planned, rows.column("published_ms"), _long(max(terms.now, 0)))
        times = due.to_numpy()[here].clip(0, MAX_TIME)
        hashes = place_hashes(np.array([terms.first_ledger]), longs(rows, ROW)[here])
        bits = tick_bits(terms.ticks.get(topic, 1))
        then = opening.put_off(times, hashes, bits, _zones(rows, opening, here))
        moved[here] = np.where(then > times, then, -1)
    return pc.if_else(pa.array(moved >= 0), pa.array(moved), planned) if terms.topics.windows else planned


def unknown_zones(rows: pa.Table, terms: Terms) -> pa.Array:
    """Which rows name a recipient's zone that is none."""
    unknown = np.zeros(rows.num_rows, np.bool_)
    if _asks_recipients(terms):
        for _, opening, here in windowed(rows, terms):
            zones = _zones(rows, opening, here)
            if zones is not None:
                unknown[here] = are_unknown(zones)
    return pa.array(unknown)


TIMES: Mapping[str, Rule] = {
    "published_ms": lambda rows, terms: pc.coalesce(_ceil(rows, "publish_time"), _long(terms.now)),
    "asked_ms": _asked,
    "planned_ms": _planned,
    "deliver_ms": _deliver,
    "due_ms": lambda rows, _: pc.max_element_wise(rows.column("deliver_ms"), rows.column("published_ms"), _long(0)),
}
"""Publication, the delivery that the producer asks for, delivery but for the topic's window, delivery (NULL: at once)
and due time, as whole numbers of ms: arithmetic of timestamps overflows at the far ends of the calendar. A topic with a
fixed delay asks no producer; one with a shortest delay puts off what comes sooner, one with proportional precision puts
off to the end of a bucket, and one with a window to the next opening, last of all. A message is due at the later of
publication and delivery, and not before 1970: what was due in 1900 is simply due."""


def coded(rows: pa.Table) -> pa.Table:
    """Rows with the column `CODED`, for all rules that ask for it."""
    return rows if CODED in rows.column_names else rows.append_column(CODED, _coded(rows))


def _coded(rows: pa.Table) -> pa.DictionaryArray:
    if CODED in rows.column_names:
        return rows.column(CODED).combine_chunks()
    return rows.column("topic").cast(pa.binary()).combine_chunks().dictionary_encode()


def _missing_topic(rows: pa.Table, _terms: Terms) -> pa.ChunkedArray:
    """Asked once for each topic."""
    topics = _coded(rows)
    blank = pa.array([not topic.strip(b" ") for topic in topics.dictionary.to_pylist()], pa.bool_())
    return blank.take(topics.indices).fill_null(True)  # noqa: FBT003 - Arrow has no name


def _asked_twice(rows: pa.Table, _terms: Terms) -> pa.ChunkedArray:
    return pc.and_(*(pc.is_valid(rows.column(name)) for name in ("deliver_at", "deliver_after_ms")))


def _out_of_range(rows: pa.Table, _terms: Terms) -> pa.ChunkedArray:
    both = rows.column("published_ms"), rows.column("deliver_ms")
    early, late = pc.min_element_wise(*both), pc.max_element_wise(*both)
    return pc.or_(pc.less(early, FIRST_INSTANT_MS), pc.greater(late, LAST_INSTANT_MS))


def _delay(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """From publication to the time that was asked for; nothing is asked of a topic with a fixed delay."""
    published, asked = rows.column("published_ms"), rows.column("asked_ms")
    after = rows.column("deliver_after_ms")
    if _is_stated(terms, _FIXED):
        after = pc.if_else(pc.is_null(_policy(rows, terms, _FIXED)), after, _NO_TIME)
    return pc.coalesce(after, pc.subtract(pc.max_element_wise(published, asked), published))


def _too_late(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    own = _policy(rows, terms, "max_delay_ms")
    return pc.greater(_delay(rows, terms), pc.min_element_wise(own, _long(terms.max_delay_ms)))


REFUSED_BY_SOURCE = "refused_by_source"
"""A source marks a row that it could not map by its delay, and says why in a property."""
REFUSALS: Mapping[str, Rule] = {
    "missing_topic": _missing_topic,
    "deliver_at_and_deliver_after": _asked_twice,
    "negative_delay": lambda rows, _: pc.less(rows.column("deliver_after_ms"), 0),
    "time_out_of_range": _out_of_range,
    "max_delay_exceeded": _too_late,
    "published_in_future": lambda rows, terms: pc.greater(
        pc.subtract(rows.column("published_ms"), terms.now), terms.max_delay_ms
    ),
    "payload_too_large": lambda rows, terms: pc.greater(rows.column(PAYLOAD_BYTES), terms.max_payload_bytes),
}
"""Why a row is refused that its source did not refuse, and whose texts are sound; the first rule that is broken counts,
and NULL breaks none. A topic is missing when nothing is in it but spaces; times are within the years 1 to 9999; the
delay is measured from publication, and the future from the batch's instant."""


def classify(rows: pa.Table, terms: Terms) -> pa.Table:
    """Add the columns of `TIMES` and `reason` (NULL: accepted) to small columns of `inbox`, in the order of arrival."""
    for name, rule in TIMES.items():
        rows = rows.append_column(name, rule(rows, terms))
    by_source = pc.if_else(pc.equal(rows.column("deliver_after_ms"), _long(REFUSED_MS)), REFUSED_BY_SOURCE, _NO_TEXT)
    broken = first_reason([(name, rule(rows, terms)) for name, rule in REFUSALS.items()])
    return with_duplicates(rows.append_column("reason", pc.coalesce(by_source, rows.column(WRONG_TEXT), broken)))


def with_duplicates(rows: pa.Table) -> pa.Table:
    """Rows with their reasons, and those of duplicates, where they are known."""
    if DUPLICATE not in rows.column_names:
        return rows
    reason = pc.if_else(rows.column(DUPLICATE), pa.scalar(DUPLICATE_PENDING), _NO_TEXT)
    number = rows.column_names.index("reason")
    return rows.set_column(number, "reason", pc.coalesce(rows.column("reason"), reason))


def in_order(rows: pa.Table) -> IntArray:
    """The order in which accepted rows are numbered: by topic, due time and arrival.

    What is due together is then a run of positions.
    """
    return ordered([ranks(rows, "topic"), longs(rows, "due_ms"), longs(rows, ROW)])


def _moment(ms: pa.Scalar | pa.ChunkedArray) -> pa.Scalar | pa.ChunkedArray:
    return pc.multiply(ms.cast(_LONG), 1_000).cast(pa.timestamp("us", "UTC"))


def _deliver_at(rows: pa.Table, _terms: Terms) -> pa.ChunkedArray:
    """As the producer asked for it, to the microsecond, unless the topic puts it off."""
    asked, deliver = rows.column("asked_ms"), rows.column("deliver_ms")
    exact = pc.coalesce(rows.column("deliver_at"), _moment(deliver))
    return pc.if_else(pc.fill_null(pc.equal(asked, deliver), fill_value=False), exact, _moment(deliver))


def _put_off_from(rows: pa.Table, terms: Terms) -> pa.ChunkedArray | pa.Array:
    """When what the window has put off would have been due."""
    if not terms.topics.windows:
        return pa.nulls(rows.num_rows, pa.timestamp("us", "UTC"))
    planned, deliver = rows.column("planned_ms"), rows.column("deliver_ms")
    before = pc.max_element_wise(planned, rows.column("published_ms"), _long(0))
    put_off = pc.and_(pc.is_valid(deliver), pc.fill_null(pc.not_equal(planned, deliver), fill_value=True))
    return pc.if_else(put_off, _moment(before), pa.scalar(None, pa.timestamp("us", "UTC")))


def _latest(rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    """To when whoever replaces a message may be put off at most."""
    if LATEST in rows.column_names:
        return _moment(rows.column(LATEST))
    return pa.nulls(rows.num_rows, pa.timestamp("us", "UTC"))


MESSAGE: Mapping[str, Rule] = {
    "publish_time": lambda rows, terms: pc.coalesce(rows.column("publish_time"), _moment(_long(terms.now))),
    "deliver_at": _deliver_at,
    "due_time": lambda rows, _: _moment(rows.column("due_ms")),
    "put_off_from": _put_off_from,
    "latest_due": lambda rows, _: _latest(rows),
    "parked": lambda rows, terms: pc.greater_equal(rows.column("due_ms"), terms.load_until),
}
"""The columns of `messages` that follow from a classified row; its position follows from its place in the order."""


def message_columns(rows: pa.Table, first: int, terms: Terms) -> dict[str, pa.ChunkedArray | pa.Array]:
    """The columns of `messages` that differ from those of `inbox`, for rows that are numbered from `first` on."""
    numbers = np.arange(first, first + rows.num_rows)
    positions = {"ledger_id": terms.first_ledger + numbers // terms.entries, "entry_id": numbers % terms.entries}
    return {
        **{name: pa.array(column) for name, column in positions.items()},
        **{name: rule(rows, terms) for name, rule in MESSAGE.items()},
        "batch_id": pa.repeat(terms.batch_id, rows.num_rows),
    }


def verdicts(rows: pa.Table, terms: Terms) -> pa.StructArray:
    """For each of the rows that `classify` takes its reason, due time, `UNKNOWN_ZONE`, `REPLACING`, and `MESSAGE`."""
    rows = classify(coded(rows), terms)
    made = {name: rows.column(name) for name in ("reason", "due_ms")}
    made |= {UNKNOWN_ZONE: unknown_zones(rows, terms), REPLACING: rows.column(REPLACING)}
    made |= {name: rule(rows, terms) for name, rule in MESSAGE.items()}
    columns = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in made.values()]
    return pa.StructArray.from_arrays(columns, names=list(made))

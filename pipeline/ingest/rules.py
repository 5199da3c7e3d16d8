"""What ingest decides about a row, in tables of rules. Each rule stands here twice: for whole arrays, and for Spark.

`pipeline.ingest.accept_local` applies the one in the driver, `pipeline.ingest.accept_spark` the other on a cluster; the
rows are the same (`tests/spark/ingest/test_rules.py` compares the two). A rule may read the columns of the rules before
it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.delta.reading.arrival import ARRIVAL
from pipeline.delta.writing.numbering import NUMBER, SortKey
from pipeline.ingest.accept import Terms
from pipeline.ingest.texts import WRONG
from pipeline.storage.arrays import first_reason, longs, ranks
from pipeline.storage.gather import PAYLOAD_BYTES, WRONG_TEXT
from pipeline.subscriptions.policies import PARTITION
from pipeline.subscriptions.records import REFUSED_MS
from state import proportional_deliver_at, proportional_widths

_FIXED, _PROPORTIONAL = "fixed_delay_ms", "proportional"
ROW = "row"
"""The column with the number of a row in the order of arrival, where rows are arrays."""
_LONG = pa.int64()
_NO_TIME = pa.scalar(None, _LONG)


@dataclass(frozen=True)
class Rule:
    """A column that follows from others, and from the terms of the batch.

    Attributes:
        name: of the column; of a rule of refusal, the reason.
        array: the column, for whole rows.
        spark: the same as an expression.
    """

    name: str
    array: Callable[[pa.Table, Terms], pa.ChunkedArray]
    spark: Callable[[Terms], Column]


def arrays(rules: Sequence[Rule], rows: pa.Table, terms: Terms) -> dict[str, pa.ChunkedArray]:
    """The columns of rules that do not read each other's."""
    return {rule.name: rule.array(rows, terms) for rule in rules}


def expressions(rules: Sequence[Rule], terms: Terms) -> dict[str, Column]:
    """The same for Spark."""
    return {rule.name: rule.spark(terms) for rule in rules}


def _ceil_array(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """A column of times in ms, rounded up: a timestamp has microseconds."""
    times = rows.column(column).cast(_LONG)
    micros = times.fill_null(0).to_numpy()
    return pc.if_else(pc.is_valid(times), pa.array(micros // 1_000 + (micros % 1_000 > 0), _LONG), _NO_TIME)


def _ceil_column(column: str) -> Column:
    return F.unix_millis(column) + F.when(F.pmod(F.unix_micros(column), F.lit(1_000)) > 0, 1).otherwise(0)


def _policy_array(rows: pa.Table, terms: Terms, name: str) -> pa.Array:
    """What the policy of a name says to the topic of each row; NULL where there is none. Asked once for each topic."""
    if all(getattr(each, name) is None for each in terms.topics.policies.values()):
        return pa.nulls(rows.num_rows, _LONG)
    coded = _coded(rows)
    names = (
        topic if topic is None else topic.decode(errors="surrogateescape") for topic in coded.dictionary.to_pylist()
    )
    found = [None if topic is None else getattr(terms.topics.of(topic), name) for topic in names]
    return pa.array(found, _LONG).take(coded.indices)


def _policy_column(terms: Terms, name: str) -> Column:
    found = {topic: getattr(each, name) for topic, each in terms.topics.policies.items()}
    if not any(value is not None for value in found.values()):
        return F.lit(None).cast("bigint")
    known = F.create_map(*(F.lit(each) for pair in found.items() for each in pair)).cast("map<string, bigint>")
    topic, whole = F.col("topic"), F.regexp_replace("topic", PARTITION, "")
    named = F.when(F.map_contains_key(known, topic), topic).otherwise(whole)
    return F.try_element_at(known, named)


def _asked_array(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """The time asked for. The clock may be a step behind the producer's: a delay never ends before it would by that."""
    after = rows.column("deliver_after_ms")
    allowed = pc.and_(pc.greater_equal(after, 0), pc.less_equal(after, LAST_INSTANT_MS))
    begin = pc.max_element_wise(rows.column("published_ms"), pa.scalar(terms.now, _LONG))
    asked = pc.coalesce(_ceil_array(rows, "deliver_at"), pc.if_else(allowed, pc.add(begin, after), _NO_TIME))
    if not terms.topics.policies:
        return asked
    return pc.if_else(pc.is_null(_policy_array(rows, terms, _FIXED)), asked, _NO_TIME)


def _asked_column(terms: Terms) -> Column:
    after = F.col("deliver_after_ms")
    begin = F.greatest("published_ms", F.lit(terms.now))
    asked = F.coalesce(_ceil_column("deliver_at"), F.when(after.between(0, LAST_INSTANT_MS), begin + after))
    return F.when(_policy_column(terms, _FIXED).isNull(), asked)


def _deliver_array(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """Not before the topic allows it, and no more precise than it asks for."""
    asked, published = rows.column("asked_ms"), rows.column("published_ms")
    if not terms.topics.policies:
        return asked
    deliver = pc.max_element_wise(asked, pc.add(published, _policy_array(rows, terms, "floor_ms")))
    trimmed = pc.is_valid(_policy_array(rows, terms, _PROPORTIONAL))
    if not pc.any(trimmed).as_py():
        return deliver
    rounded = proportional_deliver_at(deliver.fill_null(0).to_numpy(), published.to_numpy())
    return pc.if_else(pc.and_(trimmed, pc.is_valid(deliver)), pa.array(rounded), deliver)


def _deliver_column(terms: Terms) -> Column:
    deliver = F.greatest("asked_ms", F.col("published_ms") + _policy_column(terms, "floor_ms"))
    if not any(each.proportional for each in terms.topics.policies.values()):
        return deliver
    mask, delay = F.lit(0), deliver - F.col("published_ms")
    for least, width in proportional_widths():
        mask = F.when(delay >= least, F.lit(width - 1)).otherwise(mask)
    rounded = (deliver + mask).bitwiseAND(F.bitwise_not(mask))
    trimmed = _policy_column(terms, _PROPORTIONAL).isNotNull() & (rounded <= LAST_INSTANT_MS)
    return F.when(trimmed, rounded).otherwise(deliver)


TIMES: tuple[Rule, ...] = (
    Rule(
        "published_ms",
        lambda rows, terms: pc.coalesce(_ceil_array(rows, "publish_time"), pa.scalar(terms.now, _LONG)),
        lambda terms: F.coalesce(_ceil_column("publish_time"), F.lit(terms.now)),
    ),
    Rule("asked_ms", _asked_array, _asked_column),
    Rule("deliver_ms", _deliver_array, _deliver_column),
    Rule(
        "due_ms",
        lambda rows, _: pc.max_element_wise(rows.column("deliver_ms"), rows.column("published_ms"), _long(0)),
        lambda _: F.greatest("deliver_ms", "published_ms", F.lit(0)),
    ),
)
"""Publication, the delivery that the producer asks for, delivery (NULL: at once) and due time, as whole numbers of ms:
arithmetic of timestamps overflows at the far ends of the calendar. A topic with a fixed delay asks no producer; one
with a shortest delay puts off what comes sooner, and one with proportional precision puts off to the end of a bucket. A
message is due at the later of publication and delivery, and not before 1970: what was due in 1900 is simply due."""


def _long(value: int) -> pa.Scalar:
    return pa.scalar(value, _LONG)


def _coded(rows: pa.Table) -> pa.DictionaryArray:
    return rows.column("topic").cast(pa.binary()).combine_chunks().dictionary_encode()


def _by_topic(rows: pa.Table, broken: Callable[[bytes], bool]) -> pa.Array:
    """A rule about topics, asked once for each of them; NULL where there is none."""
    coded = _coded(rows)
    return pa.array(map(broken, coded.dictionary.to_pylist()), pa.bool_()).take(coded.indices)


def _is_blank(topic: bytes) -> bool:
    return not topic.strip(b" ")


def _ends_array(rows: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The earlier and the later of publication and delivery."""
    both = rows.column("published_ms"), rows.column("deliver_ms")
    return pc.min_element_wise(*both), pc.max_element_wise(*both)


def _out_of_range(rows: pa.Table, _terms: Terms) -> pa.ChunkedArray:
    early, late = _ends_array(rows)
    return pc.or_(pc.less(early, FIRST_INSTANT_MS), pc.greater(late, LAST_INSTANT_MS))


def _out_of_range_column(_terms: Terms) -> Column:
    early, late = (ends("published_ms", "deliver_ms") for ends in (F.least, F.greatest))
    return (early < FIRST_INSTANT_MS) | (late > LAST_INSTANT_MS)


def _delay_array(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    """From publication to the time that was asked for; nothing is asked of a topic with a fixed delay."""
    published, asked = rows.column("published_ms"), rows.column("asked_ms")
    after = rows.column("deliver_after_ms")
    if terms.topics.policies:
        after = pc.if_else(pc.is_null(_policy_array(rows, terms, _FIXED)), after, _NO_TIME)
    return pc.coalesce(after, pc.subtract(pc.max_element_wise(published, asked), published))


def _delay_column(terms: Terms) -> Column:
    after = F.when(_policy_column(terms, _FIXED).isNull(), F.col("deliver_after_ms"))
    return F.coalesce(after, F.greatest("published_ms", "asked_ms") - F.col("published_ms"))


def _too_late_array(rows: pa.Table, terms: Terms) -> pa.ChunkedArray:
    own = _policy_array(rows, terms, "max_delay_ms")
    return pc.greater(_delay_array(rows, terms), pc.min_element_wise(own, _long(terms.max_delay_ms)))


def _too_late_column(terms: Terms) -> Column:
    return _delay_column(terms) > F.least(_policy_column(terms, "max_delay_ms"), F.lit(terms.max_delay_ms))


def _text_rule(name: str, broken: Callable[[], Column]) -> Rule:
    """A rule that arrays were looked at for where they were read."""
    return Rule(name, lambda rows, _: pc.equal(rows.column(WRONG_TEXT), name), lambda _: broken())


_TEXTS = tuple(_text_rule(*each) for each in WRONG.items())
REFUSALS: tuple[Rule, ...] = (
    Rule(
        "refused_by_source",
        lambda rows, _: pc.equal(rows.column("deliver_after_ms"), _long(REFUSED_MS)),
        lambda _: F.col("deliver_after_ms") == REFUSED_MS,
    ),
    *_TEXTS,
    Rule(
        "missing_topic",
        lambda rows, _: _by_topic(rows, _is_blank).fill_null(True),  # noqa: FBT003 - Arrow has no name
        lambda _: F.col("topic").isNull() | (F.trim("topic") == ""),
    ),
    Rule(
        "deliver_at_and_deliver_after",
        lambda rows, _: pc.and_(*(pc.is_valid(rows.column(name)) for name in ("deliver_at", "deliver_after_ms"))),
        lambda _: F.col("deliver_at").isNotNull() & F.col("deliver_after_ms").isNotNull(),
    ),
    Rule(
        "negative_delay",
        lambda rows, _: pc.less(rows.column("deliver_after_ms"), 0),
        lambda _: F.col("deliver_after_ms") < 0,
    ),
    Rule("time_out_of_range", _out_of_range, _out_of_range_column),
    Rule(
        "max_delay_exceeded",
        _too_late_array,
        _too_late_column,
    ),
    Rule(
        "published_in_future",
        lambda rows, terms: pc.greater(pc.subtract(rows.column("published_ms"), terms.now), terms.max_delay_ms),
        lambda terms: F.col("published_ms") - F.lit(terms.now) > terms.max_delay_ms,
    ),
    Rule(
        "payload_too_large",
        lambda rows, terms: pc.greater(rows.column(PAYLOAD_BYTES), terms.max_payload_bytes),
        lambda terms: F.octet_length("payload") > terms.max_payload_bytes,
    ),
)
"""Why a row is refused; the first rule that is broken counts, and NULL breaks none. A source marks a
row that it could not map by its delay, and says why in a property. A topic is missing when nothing is
in it but spaces; times are within the years 1 to 9999; the delay is measured from publication, and the future from the
batch's instant."""


def reason_array(rows: pa.Table, terms: Terms) -> pa.Array:
    """The reason why a row is refused; NULL: it is accepted."""
    return first_reason(list(arrays(REFUSALS, rows, terms).items()))


def reason_column(terms: Terms) -> Column:
    """The same for Spark."""
    return F.coalesce(*(F.when(broken, F.lit(name)) for name, broken in expressions(REFUSALS, terms).items()))


ORDER: tuple[SortKey[pa.Table], ...] = (
    SortKey(("topic",), partial(ranks, column="topic")),
    SortKey(("due_ms",), partial(longs, column="due_ms")),
    SortKey(ARRIVAL, partial(longs, column=ROW)),
)
"""The order in which accepted rows are numbered: what is due together is then a run of positions."""


def _moment(ms: pa.Scalar | pa.ChunkedArray) -> pa.Scalar | pa.ChunkedArray:
    return pc.multiply(ms.cast(_LONG), 1_000).cast(pa.timestamp("us", "UTC"))


def _deliver_at_array(rows: pa.Table, _terms: Terms) -> pa.ChunkedArray:
    """As the producer asked for it, to the microsecond, unless the topic puts it off."""
    asked, deliver = rows.column("asked_ms"), rows.column("deliver_ms")
    exact = pc.coalesce(rows.column("deliver_at"), _moment(deliver))
    return pc.if_else(pc.fill_null(pc.equal(asked, deliver), fill_value=False), exact, _moment(deliver))


def _deliver_at_column(_terms: Terms) -> Column:
    asked = F.coalesce("deliver_at", F.timestamp_millis("deliver_ms"))
    return F.when(F.col("asked_ms") == F.col("deliver_ms"), asked).otherwise(F.timestamp_millis("deliver_ms"))


MESSAGE: tuple[Rule, ...] = (
    Rule(
        "ledger_id",
        lambda rows, terms: pa.array(terms.first_ledger + longs(rows, NUMBER) // terms.entries),
        lambda terms: F.lit(terms.first_ledger) + F.call_function("div", F.col(NUMBER), F.lit(terms.entries)),
    ),
    Rule(
        "entry_id",
        lambda rows, terms: pa.array(longs(rows, NUMBER) % terms.entries),
        lambda terms: F.pmod(NUMBER, F.lit(terms.entries)),
    ),
    Rule(
        "publish_time",
        lambda rows, terms: pc.coalesce(rows.column("publish_time"), _moment(_long(terms.now))),
        lambda terms: F.coalesce("publish_time", F.timestamp_millis(F.lit(terms.now))),
    ),
    Rule("deliver_at", _deliver_at_array, _deliver_at_column),
    Rule(
        "due_time",
        lambda rows, _: _moment(rows.column("due_ms")),
        lambda _: F.timestamp_millis("due_ms"),
    ),
    Rule(
        "parked",
        lambda rows, terms: pc.greater_equal(rows.column("due_ms"), terms.load_until),
        lambda terms: F.col("due_ms") >= terms.load_until,
    ),
    Rule(
        "batch_id",
        lambda rows, terms: pa.repeat(terms.batch_id, rows.num_rows),
        lambda terms: F.lit(terms.batch_id),
    ),
)
"""The columns of `messages` that differ from those of the inbox; the position is by the number in that order."""

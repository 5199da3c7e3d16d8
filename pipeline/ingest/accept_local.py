"""A batch of ingest in this process, by whole arrays: no job is planned or started. `accept` has the rules."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS, Settings
from pipeline.delta.batches import files_between
from pipeline.delta.commits import spelled
from pipeline.delta.offsets import Position
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.accept import Counts, Limits, Target
from pipeline.storage.arrays import IntArray, arrow_schema, longs, ordered, ranks
from pipeline.storage.files import Files
from pipeline.storage.gather import PAYLOAD_BYTES, Gathered, Texts, cuts
from pipeline.storage.parquet import row_groups
from schemas import INBOX, MESSAGES

INBOX_ROWS = arrow_schema(INBOX.schema)
"""The columns of the inbox."""
NO_ROWS = Gathered.of(INBOX, INBOX_ROWS.empty_table())
_NO_TIME = pa.scalar(None, pa.int64())
_ROW = "row"
"""The column with the number of a row in the order of arrival."""


def local_inbox(
    files: Files,
    warehouse: Warehouse,
    begin: Position,
    end: Position,
    settings: Settings,
    without: Collection[int] = (),
) -> Gathered:
    """The rows of a batch of the inbox, in the order in which they arrived: by commit, file name, place in the file.

    Texts that are too large to be held stay in their files. Files of some versions are left out.

    Raises:
        NotInDriver: they are not on this machine, or too many, or nothing that can be read without Spark.
    """
    found = files_between(files, warehouse, INBOX, begin, end, settings.driver_rows)
    by_commit = groupby((each for each in found if each[0] not in without), key=itemgetter(0))
    paths = [path for _, each in by_commit for path in sorted((path for _, path in each), key=spelled)]
    return Gathered.read(INBOX, ((group, None) for group in row_groups(INBOX, paths)), settings.driver_bytes)


@dataclass(frozen=True)
class LocalBatch:
    """As `pipeline.ingest.accept.Batch`; accepted and refused rows have their times, in the order of arrival."""

    accepted: pa.Table
    refused: pa.Table
    texts: Texts
    counts: Counts

    @classmethod
    def of(cls, inbox: Gathered, limits: Limits, load_until: int, segment_ms: int) -> "LocalBatch":
        """Look at rows of the inbox, in the order in which they arrived."""
        classified = classify(inbox.rows, limits)
        classified = classified.append_column(_ROW, pa.array(np.arange(classified.num_rows)))
        good = pc.is_null(classified.column("reason"))
        accepted, refused = classified.filter(good), classified.filter(pc.invert(good))
        due = longs(accepted, "due_ms")
        segments = np.unique(due[due >= load_until] // segment_ms).tolist()
        return cls(accepted, refused, inbox.texts, Counts(accepted.num_rows, refused.num_rows, frozenset(segments)))

    def messages(self, target: Target, settings: Settings) -> Iterator[pa.Table]:
        """Rows of `messages`, in pieces that shall be files."""
        rows = in_order(self.accepted)
        for first, piece in self._pieces(rows, settings.share(rows.num_rows)):
            number = np.arange(first, first + piece.num_rows)
            yield message_rows(piece, number, target, settings.entries_per_ledger)

    def rejected(self, now: int, batch_id: int, more: pa.Table) -> Iterator[pa.Table]:
        """Rows of `rejected_ingest`, in pieces that shall be files."""
        most = max(1, self.refused.num_rows)
        for piece in chain((piece for _, piece in self._pieces(self.refused, most)), [more]):
            rows = piece.select(more.column_names)
            rows = rows.append_column("rejected_at", pa.repeat(_moment(pa.scalar(now)), rows.num_rows))
            yield rows.append_column("batch_id", pa.repeat(batch_id, rows.num_rows))

    def _pieces(self, rows: pa.Table, most: int) -> Iterator[tuple[int, pa.Table]]:
        """Rows with their texts, a piece at a time, each with the place of its first row."""
        numbers = longs(rows, _ROW)
        for first, last in cuts(self.texts.sizes[numbers], most):
            piece, texts = rows.slice(first, last - first), self.texts.take(numbers[first:last])
            for name in texts.column_names:
                piece = piece.append_column(name, texts.column(name))
            yield first, piece


def classify(rows: pa.Table, limits: Limits) -> pa.Table:
    """Add `reason` (NULL: accepted), `published_ms`, `deliver_ms` (NULL: none asked for) and `due_ms` to inbox rows."""
    now, after = pa.scalar(limits.now, pa.int64()), rows.column("deliver_after_ms")
    published = pc.coalesce(_ceil_ms(rows, "publish_time"), now)
    allowed = pc.and_(pc.greater_equal(after, 0), pc.less_equal(after, LAST_INSTANT_MS))
    # The clock may be a step behind the producer's: a delay never ends before it would by the producer's clock.
    delayed = pc.if_else(allowed, pc.add(pc.max_element_wise(published, now), after), _NO_TIME)
    deliver = pc.coalesce(_ceil_ms(rows, "deliver_at"), delayed)
    rows = rows.append_column("published_ms", published).append_column("deliver_ms", deliver)
    rows = rows.append_column("due_ms", pc.max_element_wise(deliver, published, pa.scalar(0, pa.int64())))
    return rows.append_column("reason", _reason(rows, limits))


def _ceil_ms(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """A column of times in ms, rounded up."""
    times = rows.column(column).cast(pa.int64())
    micros = times.fill_null(0).to_numpy()
    rounded = micros // 1_000 + (micros % 1_000 > 0)
    return pc.if_else(pc.is_valid(times), pa.array(rounded, pa.int64()), _NO_TIME)


def _reason(rows: pa.Table, limits: Limits) -> pa.ChunkedArray:
    after, published, deliver = (rows.column(name) for name in ("deliver_after_ms", "published_ms", "deliver_ms"))
    late, text = pc.max_element_wise(published, deliver), _is_text(rows)
    out_of_range = pc.or_(
        pc.less(pc.min_element_wise(published, deliver), FIRST_INSTANT_MS), pc.greater(late, LAST_INSTANT_MS)
    )
    rules = {
        "topic_not_utf8": pc.invert(text[0]),
        "missing_topic": text[1],
        "deliver_at_and_deliver_after": pc.and_(pc.is_valid(rows.column("deliver_at")), pc.is_valid(after)),
        "negative_delay": pc.less(after, 0),
        "time_out_of_range": out_of_range,
        "max_delay_exceeded": pc.greater(pc.coalesce(after, pc.subtract(late, published)), limits.max_delay_ms),
        "published_in_future": pc.greater(pc.subtract(published, limits.now), limits.max_delay_ms),
        "payload_too_large": pc.greater(rows.column(PAYLOAD_BYTES), limits.max_payload_bytes),
    }
    broken = pc.make_struct(*(each.fill_null(False) for each in rules.values()))  # noqa: FBT003 - Arrow has no name
    return pc.case_when(broken, *rules, pa.scalar(None, pa.string()))


def _is_text(rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Whether each topic is UTF-8, and whether nothing is in it but spaces (or nothing at all)."""
    coded = rows.column("topic").cast(pa.binary()).combine_chunks().dictionary_encode()
    topics = coded.dictionary.to_pylist()
    utf8 = pa.array([_decodes(each) for each in topics], pa.bool_())
    blank = pa.array([not each.strip(b" ") for each in topics], pa.bool_())
    return utf8.take(coded.indices).fill_null(True), blank.take(coded.indices).fill_null(True)  # noqa: FBT003 - as above


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def in_order(accepted: pa.Table) -> pa.Table:
    """Classified rows in the order of their positions, from the order in which they arrived."""
    return accepted.take(pa.array(ordered([ranks(accepted, "topic"), longs(accepted, "due_ms")])))


def message_rows(rows: pa.Table, number: IntArray, target: Target, entries: int) -> pa.Table:
    """Rows of `messages` from classified rows with their texts and places; a ledger has so many entries."""
    due = rows.column("due_ms")
    after = pc.if_else(pc.is_valid(rows.column("deliver_after_ms")), rows.column("deliver_ms"), _NO_TIME)
    made = {
        "ledger_id": pa.array(target.first_ledger + number // entries),
        "entry_id": pa.array(number % entries),
        "publish_time": pc.coalesce(rows.column("publish_time"), _moment(pa.scalar(target.now))),
        "deliver_at": pc.coalesce(rows.column("deliver_at"), _moment(after)),
        "due_time": _moment(due),
        "parked": pc.greater_equal(due, target.load_until),
        "batch_id": pa.repeat(target.batch_id, rows.num_rows),
    }
    names = MESSAGES.schema.names
    return pa.Table.from_arrays([made[name] if name in made else rows.column(name) for name in names], names=names)


def _moment(ms: pa.Scalar | pa.ChunkedArray) -> pa.Scalar | pa.ChunkedArray:
    return pc.multiply(ms.cast(pa.int64()), 1_000).cast(pa.timestamp("us", "UTC"))

"""A batch of ingest in this process, by whole arrays: no job is planned or started. `core.rules` has the rules."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.settings import Settings
from pipeline.delta.checkpoints import Position
from pipeline.delta.logs.entries import uri_name
from pipeline.delta.reading.strangers import FOLDED, FilesBroken, too_large
from pipeline.delta.warehouse import Place, Warehouse
from pipeline.ingest.core.rules import (
    CODED,
    ROW,
    ZONE,
    classify,
    coded,
    in_order,
    message_columns,
    recipients,
    unknown_zones,
    with_duplicates,
)
from pipeline.ingest.core.terms import Counts, Terms
from pipeline.ingest.core.uniqueness import (
    ASKED,
    KEY,
    NO_KEYS,
    Decide,
    EndedBatch,
    UniqueBatch,
    asking,
    key_names,
    unique_rows,
)
from pipeline.ingest.keyless import unique_keys
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.storage.gather import Gathered, Texts, cuts
from pipeline.storage.parquet import row_groups, size_of
from pipeline.storage.texts import refused_texts
from pipeline.subscriptions.records import REPLACES
from schemas import INBOX, MESSAGES, OLDER
from state.units import us

INBOX_ROWS = arrow_schema(INBOX.columns)
"""The columns of the inbox."""
NO_ROWS = Gathered.of(INBOX, INBOX_ROWS.empty_table())


def local_inbox(
    warehouse: Warehouse,
    begin: Position,
    end: Position,
    settings: Settings,
    without: Collection[int] = (),
    left: Collection[Place] = (),
    *,
    checked: bool = True,
) -> Gathered:
    """The rows of a batch of the inbox, in the order in which they arrived: by commit, file name, place in the file.

    Texts that are too large to be held stay in their files. What comes `without` are versions, what is `left` out are
    single files. Unless they were `checked` before, a file may unfold to too much.

    Raises:
        FilesBroken: a file does.
        NotInDriver: only Spark reaches them, or they are too many, or nothing that can be read without it.
    """
    found = warehouse.files_between(INBOX, begin, end, settings.driver_rows, left)
    by_commit = groupby((each for each in found if each[0] not in without), key=itemgetter(0))
    paths = [path for _, each in by_commit for path in sorted((path for _, path in each), key=uri_name)]
    versions = {path: version for version, path in found}

    def fits(path: str, size: int) -> None:
        if size > settings.max_unfolded_bytes and size > FOLDED * size_of(path):
            name = path.removeprefix(f"{warehouse.files.readable(warehouse.path(INBOX))}/")
            raise FilesBroken([too_large(versions[path], name, settings.max_unfolded_bytes)])

    groups = ((group, None) for group in row_groups(INBOX, paths))
    return Gathered.read(INBOX, groups, settings.driver_bytes, None if checked else fits)


@dataclass(frozen=True)
class LocalBatch:
    """The rows of a batch, looked at; accepted and refused rows have their times, in the order of arrival."""

    terms: Terms
    accepted: pa.Table
    refused: pa.Table
    texts: Texts
    counts: Counts
    unique: UniqueBatch = NO_KEYS

    @classmethod
    def of(cls, inbox: Gathered, terms: Terms, decide: Decide | None = None) -> "LocalBatch":
        """Look at rows of the inbox, in the order in which they arrived; `decide` is asked where keys may meet."""
        rows = numbered(inbox, terms)
        classified = classify(rows, terms)
        if decide is not None:
            asked = asking(_replacing(classified, inbox.texts), terms.topics)
            terms = replace(terms, topics=terms.topics.with_replacing(asked)) if asked else terms
        unique = NO_KEYS if decide is None else _unique(classified, inbox.texts, terms, decide)
        if unique.parts:
            made = unique.columns(rows.num_rows)
            again = rows if unique.is_bound else classified
            for name, column in made.items():
                again = again.append_column(name, column)
            classified = classify(again, terms) if unique.is_bound else with_duplicates(again)
        good = pc.is_null(classified.column("reason"))
        accepted, refused = classified.filter(good), classified.filter(pc.invert(good))
        due = longs(accepted, "due_ms")
        segments = frozenset(np.unique(due[due >= terms.load_until] // terms.segment_ms).tolist())
        reasons = {row["values"]: row["counts"] for row in pc.value_counts(refused.column("reason")).to_pylist()}
        zones = int(pc.sum(unknown_zones(accepted, terms)).as_py() or 0)
        counts = Counts(accepted.num_rows, reasons, segments, int((due < terms.express).sum()), zones)
        return cls(terms, accepted, refused, inbox.texts, counts, unique)

    @cached_property
    def _order(self) -> IntArray:
        """The accepted rows in the order of their positions."""
        return in_order(self.accepted)

    @cached_property
    def ended(self) -> EndedBatch:
        """What it comes to for those whose keys meet."""
        rows, count = longs(self.accepted, ROW), self.accepted.num_rows + self.refused.num_rows
        places, due = np.full(count, -1), np.full(count, -1)
        places[rows[self._order]], due[rows] = np.arange(len(rows)), longs(self.accepted, "due_ms")
        return self.unique.ended(due.__getitem__, places.__getitem__, self.terms)

    def messages(self, settings: Settings) -> Iterator[pa.Table]:
        """Rows of `messages`, in pieces that shall be files: dense in the order of `rules.in_order`."""
        rows, first = self.accepted.take(pa.array(self._order)), 0
        for piece in self._pieces(rows, settings.share(rows.num_rows)):
            made, names = message_columns(piece, first, self.terms), MESSAGES.columns.names
            columns = [made[name] if name in made else piece.column(name) for name in names]
            yield pa.Table.from_arrays(columns, names=names)
            first += piece.num_rows

    def rejected(self, more: pa.Table) -> Iterator[pa.Table]:
        """Rows of `rejected_ingest`, in pieces that shall be files; `more` rows have a reason already."""
        most = max(1, self.refused.num_rows)
        instant = pa.scalar(us(self.terms.now), pa.timestamp("us", "UTC"))
        refused = self.refused
        for name, column in self._older().items():
            refused = refused.append_column(name, column)
            more = more.append_column(name, pa.nulls(more.num_rows, pa.int64()))
        for piece in chain(self._pieces(refused, most), [more]):
            rows = refused_texts(piece.select(more.column_names))
            rows = rows.append_column("rejected_at", pa.repeat(instant, rows.num_rows))
            yield rows.append_column("batch_id", pa.repeat(self.terms.batch_id, rows.num_rows))

    def _older(self) -> dict[str, pa.Array]:
        """For what refused rows wait."""
        if not self.unique.parts:
            return dict.fromkeys(OLDER, pa.nulls(self.refused.num_rows, pa.int64()))
        return self.ended.older(longs(self.refused, ROW))

    def _pieces(self, rows: pa.Table, most: int) -> Iterator[pa.Table]:
        """Rows with their texts, a piece at a time."""
        numbers = longs(rows, ROW)
        for first, last in cuts(self.texts.sizes[numbers], most):
            piece, texts = rows.slice(first, last - first), self.texts.take(numbers[first:last])
            for name in texts.column_names:
                piece = piece.append_column(name, texts.column(name))
            yield piece


def numbered(inbox: Gathered, terms: Terms) -> pa.Table:
    """Small columns of rows of the inbox, in the order of arrival, with `ROW`, `CODED` and the zones of recipients."""
    rows = coded(inbox.rows.append_column(ROW, pa.array(np.arange(inbox.rows.num_rows))))
    for name, here in recipients(rows, terms).items():
        zones = _placed(inbox.texts.values(here, name), here, rows.num_rows)
        rows = rows.append_column(ZONE + name, zones.combine_chunks().dictionary_encode())
    return rows


def _unique(classified: pa.Table, texts: Texts, terms: Terms, decide: Decide) -> UniqueBatch:
    """What becomes of rows that nothing else refuses, where keys may meet."""
    names = classified.column(CODED).combine_chunks().dictionary.to_pylist() if terms.topics.unique else ()
    if not any(terms.topics.owner(each.decode(errors="surrogateescape")) in terms.topics.unique for each in names):
        return NO_KEYS
    rows = classified.filter(pc.is_null(classified.column("reason"))).select(ASKED)
    topics = unique_rows(rows, terms.topics)
    if not topics:
        return NO_KEYS
    numbers = longs(rows, ROW)
    for name in key_names(terms.topics):
        own = [here for topic, here in topics.items() if name in terms.topics.unique[topic].names]
        here = np.sort(np.concatenate([np.empty(0, np.int64), *own]))
        found = texts.values(numbers[here], name) if name else texts.keys(numbers[here])
        found = unique_keys(found, partial(texts.values, numbers[here]))
        rows = rows.append_column(KEY + name, _placed(found, here, rows.num_rows))
    return decide(rows, topics, terms.topics)


def _replacing(classified: pa.Table, texts: Texts) -> set[str]:
    """The topics of messages that ask to replace others, and that nothing refuses."""
    asks = texts.values(np.arange(classified.num_rows), REPLACES).is_valid()
    if not pc.any(asks).as_py():
        return set()
    rows = classified.filter(asks).filter(pc.field("reason").is_null())
    names = rows.column("topic").cast(pa.binary()).unique().drop_null()
    return {name.decode(errors="surrogateescape") for name in names.to_pylist()}


def _placed(values: pa.ChunkedArray, places: IntArray, count: int) -> pa.ChunkedArray:
    """Values at some places of so many rows, and NULL at the others."""
    if len(places) == count:
        return values
    numbers = np.full(count, -1)
    numbers[places] = np.arange(len(places))
    return values.take(pa.array(numbers, mask=numbers < 0))

"""What decides a batch of ingest beside its rows. Every commit of the batch carries it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.config.errors import BadSetting
from pipeline.config.stages import INGEST
from pipeline.config.zones import check_rules
from pipeline.delta.logs.entries import Commit
from pipeline.delta.reading.strangers import LeftOut
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import last_commits
from pipeline.ingest.core.terms import Terms, ledgers
from pipeline.ingest.segments import Span
from pipeline.subscriptions.lines import Topics
from schemas import MESSAGES, REJECTED_INGEST, SEGMENTS
from state.units import Ms

_KEYS = {"merged": "told"}
"""Names of fields in notes, where they are others."""


@dataclass(frozen=True)
class Plan:
    """All that decides the rows of a batch beside the rows themselves; times in ms.

    Attributes:
        now: the batch's instant.
        limits: (max_delay_ms, max_payload_bytes).
        loaded: what is due before it was loaded by earlier batches.
        load_until: what is due before it is loaded with this batch. Never less than `loaded`.
        first_ledger: the first ledger that no earlier batch used.
        next_ledger: the first ledger that this batch leaves unused.
        seen: version of `subscriptions` by which positions were addressed last.
        registry: version of `subscriptions` that says who listens, and which policies topics have.
        begin: where the batch begins in the inbox: version, index.
        source: where it ends there.
        merged: versions of the inbox that are no appends, and whose new rows are taken in with this batch.
        left: files of the inbox that are not read.
        express: messages of the batch that are due before this time (ms) skip the schedule; 0: none does.
        redelivery: the version of `redelivery` after which the batch may have written there.
        near: whether the batch may have accepted what goes to the schedule.
        entries: so many messages fill a ledger; 0: an earlier version of this project did not say it.
        scheduled: the instant of the last batch before this one that went to the schedule as a whole; 0: none did. What
            of it was due at once waits for the end of its bucket there, and comes before what is due at once now.
        rules: the release of the rules of time zones, by which windows are found; empty: nobody noted it.
        marker: the last marker before the batch; -1: an earlier version of this project did not say it.
        calendars: version of `calendars` that windows follow; -1: no topic asks for one.
        taken: what was due by then may have been with dispatch (ms), so that nothing replaces it; not before `now`.
        refused: which rows are refused since a message with their key waits (`refused_text`); None: that is not decided
            yet, or an earlier version of this project did not say it.
        commanded: the messages of which commands said that they wait, or do not, though their due times say otherwise:
            ledgers, and entries of each (`commanded_note`); None: as for `refused`.
    """

    now: Ms
    limits: tuple[int, int]
    loaded: int
    load_until: int
    first_ledger: int
    next_ledger: int
    seen: int
    registry: int
    begin: tuple[int, int]
    source: tuple[int, int]
    merged: tuple[int, ...] = ()
    left: tuple[LeftOut, ...] = ()
    express: int = 0
    redelivery: int = -1
    near: bool = True
    entries: int = 0
    scheduled: int = 0
    rules: str = ""
    marker: int = -1
    calendars: int = -1
    taken: int = 0
    refused: str | None = None
    commanded: tuple[tuple[int, str], ...] | None = None

    @property
    def span(self) -> Span:
        """Which positions the batch addresses."""
        return Span(self.now, self.loaded, self.load_until, self.first_ledger, self.next_ledger, self.express)

    def terms(self, topics: Topics, ticks: Mapping[str, int], segment_ms: int, entries: int, number: int) -> Terms:
        """What decides the rows of the batch.

        Args:
            topics: the policies of topics at the plan's version of the registry.
            ticks: the coarsest tick of those who listen to each topic with a window, ms.
            segment_ms: the span of a segment.
            entries: so many messages fill a ledger, when the plan does not say it.
            number: of the batch.
        """
        return Terms(
            self.now,
            *self.limits,
            topics,
            ticks,
            self.express,
            self.load_until,
            segment_ms,
            self.first_ledger,
            self.entries or entries,
            number,
        )

    def filled(self, accepted: int, entries: int) -> int:
        """The first ledger that is left unused by so many messages; of an earlier plan so many `entries` fill one."""
        return self.first_ledger + ledgers(accepted, self.entries or entries)

    def check_again(self, terms: Terms, accepted: int) -> None:
        """Refuse to give messages other due times or positions than they had.

        Args:
            terms: of the batch, as it is looked at again.
            accepted: so many of its messages are accepted.

        Raises:
            BadSetting: the plan does not say how many messages fill a ledger, and that was another number.
            OtherRules: a topic has a window, and the plan was made by other rules of time zones.
        """
        if terms.topics.windows:
            check_rules(self.rules)
        if self.filled(accepted, terms.entries) != self.next_ledger:
            raise BadSetting("entries_per_ledger", terms.entries, "what it was when these messages were accepted")

    def as_note(self) -> dict[str, Any]:
        """For the metadata of a commit."""
        return {_KEYS.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def of_note(cls, note: Mapping[str, object]) -> "Plan":
        """The plan that a commit carries."""
        names = {key: name for name, key in _KEYS.items()}
        fields = {names.get(k, k): tuple(value) if isinstance(value, list) else value for k, value in note.items()}
        left: Any = fields.pop("left", ())
        return cls(left=tuple(LeftOut(*each) for each in left), **fields)  # type: ignore[arg-type] # asdict wrote it


def last_commits_of_ingest(warehouse: Warehouse) -> dict[str, Commit]:
    """The last commits to its tables, the one that took most of the inbox first.

    A batch that took rows wrote `messages` or `rejected_ingest`. `redelivery` is the schedule's as well, and the last
    commit of ingest may be far back in its log.
    """
    last = last_commits(warehouse, INGEST, MESSAGES, REJECTED_INGEST, SEGMENTS)
    return dict(sorted(last.items(), key=lambda each: taken(each[1]), reverse=True))


def taken(commit: Commit) -> tuple[int, int, int]:
    """Orders the commits of ingest, whoever made them: positions and instants only grow, also across a take-over."""
    version, index = commit.note["source"]
    return version, index, commit.note["now"]

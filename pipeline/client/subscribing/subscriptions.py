"""Subscribing: rows of `subscriptions`, and how far ingest has noticed them.

Each change replaces the line of one subscription in one commit, which fails when somebody else changed that line
meanwhile, and is then decided anew. So of two processes that register one name at the same moment one finds it
registered, and no version of the table lacks a subscription whose policies change.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake import DeltaTable, write_deltalake

from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.subscribing.deadletters import check_letters
from pipeline.client.subscribing.linepolicies import as_stated, check_guard, plain, sink_after_of
from pipeline.client.subscribing.lines import (
    grown_history,
    keep_small,
    named_in_sql,
    registered_in,
    replace_lines,
    with_history,
)
from pipeline.config.errors import AlreadySubscribed, BadValue, check_kind, check_text
from pipeline.config.spelling import command_line, subscription_options
from pipeline.delta.deltars import LOG_STAYS, fitted, open_table, query, retried, rows_of
from pipeline.subscriptions.incarnations import Name, Sought, wrong_names
from pipeline.subscriptions.lines import Registered, RegistryLine
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import plain_topic, topic_of
from schemas import DELIVERIES, REDELIVERY, SUBSCRIPTIONS
from state import tick_bits

TYPES = ("exclusive", "failover", "shared", "key_shared")
STARTS = ("earliest", "latest")
_NAMES = "SELECT DISTINCT topic, subscription FROM registry"


_COLUMNS = ("type", "start", "tick_ms")
"""What is fixed for the life of a subscription."""


@dataclass(frozen=True)
class Subscription:
    """A line of the registry.

    Attributes:
        topic: the topic listened to.
        name: unique within the topic.
        type: one of `TYPES`.
        start: `earliest` (what the log holds already, too), `latest` (what comes from now on), or the text of the
            last seek (`Sought`).
        tick_ms: precision in ms: a message comes up to so much late for it, never early.
        policies: acknowledgement, and what becomes of messages that fail.
        unclear: the texts of the registry when one of its policies cannot be followed; not part of what a line says.

    Raises:
        BadValue: a name that is empty or not Unicode, an unknown type or start.
        OutOfRange: the tick is not in 1..2^41.
    """

    topic: str
    name: str
    type: str = "shared"
    start: str = "latest"
    tick_ms: int = 1_000
    policies: Policies = field(default_factory=Policies)
    unclear: Mapping[str, str | None] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no stage could work with."""
        for each, text in (("topic", self.topic), ("name", self.name)):
            check_kind(each, text, str, "a name")
            check_text(each, text)
        if (allowed := wrong_names(self.topic, self.name)) is not None:
            raise BadValue("name" if self.topic.strip() else "topic", self.name, allowed)
        if self.type not in TYPES:
            raise BadValue("type", self.type, ", ".join(TYPES))
        check_kind("start", self.start, str, ", ".join(STARTS))
        if self.start not in STARTS and self.sought is None:
            raise BadValue("start", self.start, ", ".join(STARTS))
        tick_bits(self.tick_ms)

    @property
    def named(self) -> Name:
        """Topic and name."""
        return self.topic, self.name

    def with_set(self, values: Mapping[str, Any]) -> Policies:
        """Its policies when some are set; the others stay, as far as they can be followed then.

        Raises:
            BadValue: they cannot be followed.
        """
        return replace(self.policies, **values) if self.unclear is None else Policies.changed(self.unclear, values)

    @property
    def letters_to(self) -> tuple[str, str | None]:
        """Its topic, and the topic of its dead letters if it has any."""
        given = self.policies.max_redeliveries is not None
        return self.topic, self.policies.dead_letters(*self.named) if given else None

    @property
    def sought(self) -> Sought | None:
        """Where the last seek lets it begin; None: there was none."""
        return Sought.of_text(self.start)


def subscribe(root: str, new: Subscription) -> bool:
    """Register a subscription; False when it is registered already, just so.

    One that was sought since is the same one, wherever it was to start. One that acknowledges counts all that was
    released up to now as settled, unless its policies say up to where.

    Raises:
        NoWarehouse: the folder has no registry.
        AlreadySubscribed: the name is taken, with other settings.
        StillConflicting: others changed this line every time; nothing was written.
    """
    return register(root, new)


def register(root: str, new: Subscription, said: Collection[str] | None = None) -> bool:
    """As `subscribe`; of one that is there only those columns and policies have to be so that somebody said."""
    check_kind("new", new, Subscription, "a Subscription")
    new = replace(new, topic=plain_topic(new.topic), policies=plain(new.policies))

    def decide(found: Subscription | None) -> Subscription | None:
        if found is None:
            check_guard(new.policies)
            return _begun(root, new)
        start = found.start if found.sought is None else new.start
        there = replace(found, start=start, policies=as_stated(found.policies, new.policies))
        wanted = new if said is None else _as_said(there, new, said)
        if there == wanted:
            return None
        raise _taken(root, there, wanted)

    return change(root, new.named, decide)


def _as_said(there: Subscription, new: Subscription, said: Collection[str]) -> Subscription:
    """A line with what somebody said of it; the rest stays."""
    columns: dict[str, Any] = {name: getattr(new, name) for name in _COLUMNS if name in said}
    policies = {name: getattr(new.policies, name) for name in Policies.rows if name in said}
    return replace(there, policies=replace(there.policies, **policies), **columns)


def _taken(root: str, there: Subscription, new: Subscription) -> AlreadySubscribed:
    """What a line has that somebody asked otherwise for, by the names of its columns and policies, and the remedy."""

    def said(line: Subscription) -> dict[str, object]:
        return {**{name: getattr(line, name) for name in _COLUMNS}, **line.policies.as_map()}

    has, asked = said(there), said(new)
    names = [name for name in {**has, **asked} if has.get(name) != asked.get(name)]
    found = ", ".join(f"{name} {has.get(name, 'unset')}, not {asked.get(name, 'unset')}" for name in names)
    fixed = not Policies.rows.keys() >= set(names)
    command = command_line(root, *(["unsubscribe"] if fixed else ["policy", "set"]), *subscription_options(*new.named))
    remedy = f"{'to begin anew end it' if fixed else 'change it'} with: {command}"
    return AlreadySubscribed(*new.named, found, remedy)


def subscribe_all(root: str, lines: Callable[[DeltaTable], list[Subscription]]) -> None:
    """Register subscriptions whose names are not registered, by one commit; `lines` gives them from the registry.

    A name that was registered before begins anew, by a commit of its own.

    Raises:
        NoWarehouse: the folder has no registry.
        StillConflicting: others changed the registry every time; some may be registered.
    """

    def write(registry: DeltaTable) -> list[Subscription]:
        known = {(row["topic"], row["subscription"]) for row in query(_NAMES, registry=registry)}
        begun = [_begun(root, each) for each in lines(registry)]
        new = [row_of(each, active=True) for each in begun if each.named not in known]
        if rows := [row for each in new for row in grown_history([], each)]:
            table = fitted(registry, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, rows))
            write_deltalake(registry, table, mode="append", post_commithook_properties=LOG_STAYS)
            keep_small(registry)
        return [each for each in begun if each.named in known]

    for each in retried(root, SUBSCRIPTIONS, write):
        change(root, each.named, lambda found, new=each: None if found else new)  # type: ignore[misc] # the line of this turn


def set_policies(root: str, topic: str, name: str, policies: Policies) -> bool:
    """Give a subscription other policies, on each partition of the topic; False when it has these already.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound: there is no such subscription.
        BadValue: the number of slots is another one; it stays while the subscription acknowledges.
        StillConflicting: others changed this line every time; nothing was written.
    """
    check_kind("policies", policies, Policies, "Policies")
    return change_each(root, topic, name, lambda found: with_policies(root, found, policies))


def unsubscribe(root: str, topic: str, name: str) -> None:
    """End a subscription, on each partition of the topic. If it comes back, it begins anew, with nothing open for it.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound: there is no such subscription.
        StillConflicting: others changed this line every time; nothing was written.
    """
    change_each(root, topic, name, lambda found: found, active=False)


def change_each(
    root: str, topic: str, name: str, decide: Callable[[Subscription], Subscription | None], *, active: bool = True
) -> bool:
    """As `change`, of each subscription that a topic and a name mean; whether a line was replaced.

    Raises:
        NoWarehouse, SubscriptionNotFound, BadValue: as for `meant`.
        StillConflicting: others changed a line every time; those before it are changed.
    """

    def changed(mine: Name) -> bool:
        return change(root, mine, lambda found: decide(existing(found, mine)), active=active)

    fresh = [changed(each.named) for each in meant(root, topic, name)]
    return any(fresh)


def change(
    root: str,
    name: Name,
    decide: Callable[[Subscription | None], Subscription | None],
    *,
    active: bool = True,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Replace the line of a subscription by one commit, in which nobody else has changed it.

    Args:
        root: the warehouse.
        name: topic and subscription.
        decide: gives the new line, from the active one, or None to leave it as it is; called again when somebody else
            was faster.
        active: whether the new line is.
        pause: waits so many seconds.

    Returns:
        Whether the line was replaced.

    Raises:
        NoWarehouse: the folder has no registry.
        StillConflicting: others changed the line every time; nothing was written.
    """

    def rows(registry: DeltaTable) -> list[dict[str, object]] | None:
        new = decide(line_of(registry, name))
        return None if new is None else with_history(registry, name, row_of(new, active=active))

    return replace_lines(root, name, rows, pause)


def with_policies(root: str, found: Subscription, policies: Policies) -> Subscription | None:
    """A line with other policies; None when it has these already, and the registry says no others.

    Raises:
        BadValue: the number of slots is another one; it stays while the subscription acknowledges. Or there is a guard
            that cannot be evaluated.
    """
    old = found.policies
    if old.ack and policies.ack:
        if policies.slots_of(found.type) != old.slots_of(found.type):
            raise BadValue("slots", policies.slots, f"{old.slots} until the subscription ends")
        policies = replace(policies, ack_after=old.ack_after if policies.ack_after is None else policies.ack_after)
    elif policies.ack and policies.ack_after == old.ack_after:
        # While it did not acknowledge, all that came counted as settled; and what was settled before stays so.
        policies = replace(policies, ack_after=None)
    policies = replace(policies, sink_after=sink_after_of(old, policies))
    if (policies.guard, policies.guard_tables) != (old.guard, old.guard_tables):
        check_guard(policies)
    new = _begun(root, replace(found, policies=policies))
    return None if new == found and found.unclear is None else new


def line_of(registry: DeltaTable, name: Name) -> Subscription | None:
    """The active line of a subscription; of several the one that counts."""
    return next(iter(active(registry, named_in_sql(name))), None)


def existing(found: Subscription | None, name: Name) -> Subscription:
    """The line of a subscription that has to be there.

    Raises:
        SubscriptionNotFound: it is not.
    """
    if found is None:
        raise SubscriptionNotFound(*name)
    return found


def meant(root: str, topic: str, name: str) -> list[Subscription]:
    """The subscriptions that a topic and a name mean: that of the topic, and those of its partitions.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound: there is none.
        BadValue: one of them is no text, or not Unicode.
    """
    mine = plain_topic(topic), name
    found = chosen(active(open_table(root, SUBSCRIPTIONS), named_in_sql(mine, partitions=True)), *mine)
    if not found:
        raise SubscriptionNotFound(*mine)
    return found


def registered(root: str, topic: str, name: str) -> Subscription:
    """A subscription that has to be there; of a topic with partitions the first one that it means.

    Raises:
        NoWarehouse, SubscriptionNotFound, BadValue: as for `meant`.
    """
    return meant(root, topic, name)[0]


def subscriptions(root: str, topic: str | None = None, name: str | None = None) -> list[Subscription]:
    """The active subscriptions, by topic and name; of a topic and its partitions, or of a name, when that is given.

    Any Delta writer may append lines. They are read as ingest reads them: those that it refuses are left out, and what
    it does not look at is given its default.
    """
    return chosen(active(open_table(root, SUBSCRIPTIONS)), topic, name)


def active(registry: DeltaTable, whose: str = "TRUE") -> list[Subscription]:
    """The same of the registry at a version, of all or of those that a condition names."""
    return listed(registered_in(registry, whose))


def listed(registered: Registered) -> list[Subscription]:
    """The same of what was read of it."""
    return [_of_line(line) for line in registered.lines.values() if _can_be_said(line)]


def chosen(lines: Iterable[Subscription], topic: str | None, name: str | None) -> list[Subscription]:
    """Those of a topic and its partitions, or of a name, when that is given."""
    check_text("subscription", name)
    topic = None if topic is None else plain_topic(topic)
    return [each for each in lines if topic in (None, each.topic, topic_of(each.topic)) and name in (None, each.name)]


def _can_be_said(line: RegistryLine) -> bool:
    return wrong_names(line.topic, line.name) is None and line.has_tick


def _of_line(line: RegistryLine) -> Subscription:
    """What stages follow of a line. A start that they do not know is `latest`."""
    start = line.start if line.start in STARTS or line.subscription.sought else "latest"
    texts = None if line.wrong is None else dict(line.texts)
    return Subscription(line.topic, line.name, line.type, start, line.tick_ms, line.policies, texts)


def _begun(root: str, line: Subscription) -> Subscription:
    """A line whose acknowledgement, and whose sink, begin behind what there is now, unless it says where."""
    policies = plain(line.policies)
    line = replace(line, policies=policies)
    if line.letters_to[1] is not None:
        _check_letters(line, subscriptions(root))
    if policies.ack and policies.ack_after is None:
        policies = replace(policies, ack_after=open_table(root, REDELIVERY).version())
    if policies.sink is not None and policies.sink_after is None:
        policies = replace(policies, sink_after=open_table(root, DELIVERIES).version())
    return replace(line, policies=policies)


def _check_letters(line: Subscription, known: Sequence[Subscription]) -> None:
    check_letters(line.letters_to, [each.letters_to for each in known])
    # What is there stays so.
    if line.policies.dead_letter_topic is None and line.letters_to not in [
        each.letters_to for each in known if each.named == line.named
    ]:
        for each in known:
            unnamed = each.policies.dead_letter_topic is None
            if unnamed and each.named != line.named and each.letters_to[1] == line.letters_to[1]:
                of = "/".join(each.named)
                raise BadValue("dead_letter_topic", None, f"a name: {line.letters_to[1]} has the dead letters of {of}")


def row_of(line: Subscription, *, active: bool) -> dict[str, object]:
    """A line as a row of the registry."""
    return {
        "topic": line.topic,
        "subscription": line.name,
        "type": line.type,
        "start": line.start,
        "tick_ms": line.tick_ms,
        "policies": line.policies.as_map() or None,
        "active": active,
    }

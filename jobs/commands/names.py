"""Names of topics and subscriptions that somebody typed: whether anybody knows them, and which known one is nearest."""

from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches

from jobs.terminal import echo
from pipeline.client.exceptions import ANY, SubscriptionNotFound, TopicNotFound
from pipeline.client.subscribing.lines import of_topic_in_sql
from pipeline.client.subscribing.subscriptions import active, subscriptions
from pipeline.client.tables.partitions import partition_counts, partitions_of, topic_partitions
from pipeline.config.errors import BadValue, NoWarehouse, PipelineError
from pipeline.config.printed import printable
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.topicnames import topic_of
from schemas import INBOX, MESSAGES, SUBSCRIPTIONS

_VERY_NEAR = 0.8
"""Of two names, by `difflib`: `ordres` and `orders` have 0.83."""
_ALL = "SELECT DISTINCT topic, COALESCE(subscription, '') AS subscription FROM registry WHERE topic IS NOT NULL"


def check_names(root: str, topic: str | None, subscription: str | None) -> None:
    """Refuse a name that nobody has ever had: whoever looks at it would see nothing, and not why.

    A subscription that has ended is known, and so is a topic that has messages, partitions or policies. Of one that has
    messages only it is said that nobody gets them: they may have been sent to a mistyped name.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound, TopicNotFound: nobody knows it.
    """
    known = _known(root) if topic is not None or subscription is not None else set()
    of_topic = {each for each in known if topic is None or topic in (each[0], topic_of(each[0]))}
    if subscription is not None and not any(name == subscription for _, name in of_topic):
        raise with_nearest(root, SubscriptionNotFound(topic or ANY, subscription))
    if topic is not None and not of_topic:
        if not _has_messages(root, topic):
            raise TopicNotFound(topic, _nearest(topic, (each for each, _ in known)))
        heard_by(root, topic)


def with_nearest(root: str, error: SubscriptionNotFound) -> SubscriptionNotFound:
    """The same error with the nearest name that is known."""
    known = _known(root)
    topics = {topic for topic, _ in known if error.topic in (ANY, topic, topic_of(topic))}
    names = {name for topic, name in known if name and (not topics or topic in topics)}
    nearest = _nearest(error.subscription, names) if topics else _nearest(error.topic, (topic for topic, _ in known))
    return SubscriptionNotFound(error.topic, error.subscription, nearest)


def warn_of_new(root: str, topic: str) -> None:
    """Of a topic that is about to be made: say so when a known one is very near, since it may be mistyped."""
    with suppress(PipelineError, OSError):
        known = {each for each, _ in _known(root)}
        nearest = _nearest(topic, known, _VERY_NEAR)
        if nearest is not None and topic not in {*known, *map(topic_of, known)} and not _has_messages(root, topic):
            echo(f"delayline: topic {printable(topic)!r} is new; did you mean {printable(nearest)!r}?", err=True)


def heard_by(root: str, topic: str) -> list[str]:
    """The subscriptions that get what is sent to a topic, by name; warns when none does, unless nobody can tell.

    A topic that has partitions is heard where they are, and one that only looks like a partition is a topic by itself.
    """
    with suppress(PipelineError, OSError):
        names = _hearing(root, topic)
        if not names:
            echo(f"delayline: topic {printable(topic)!r} has no subscription yet{_meant(root, topic)}", err=True)
        return names
    return []


def check_heard(root: str, topic: str) -> None:
    """Refuse a topic that no subscription hears: what is taken from a broker for it would be there for nobody.

    Raises:
        BadValue: none does.
        NoWarehouse: the folder has no registry.
    """
    if not _hearing(root, topic):
        raise BadValue("into", topic, f"a topic that has a subscription, with --acknowledge{_meant(root, topic)}")


def _hearing(root: str, topic: str) -> list[str]:
    """The subscriptions of a topic, or of its partitions: who sends needs the lines of one topic, however many."""
    taking = set(topic_partitions(root, topic))
    lines = active(open_table(root, SUBSCRIPTIONS), of_topic_in_sql(topic_of(topic)))
    return sorted({each.name for each in lines if each.topic in taking})


def _meant(root: str, topic: str) -> str:
    nearest = _nearest_heard(root, topic)
    return "" if nearest is None else f"; did you mean {printable(nearest)!r}?"


def _nearest_heard(root: str, topic: str) -> str | None:
    """The nearest topic that a subscription hears; of a partition that is not there, the topic."""
    heard = {each.topic for each in subscriptions(root)}
    counts = partition_counts(root)
    heard |= {whole for whole, count in counts.items() if heard.intersection(partitions_of(whole, count))}
    return topic_of(topic) if topic_of(topic) in heard else _nearest(topic, heard - {topic})


def _known(root: str) -> set[Name]:
    """Topics and names of subscriptions that are there, or were; a topic with policies or partitions has no name."""
    rows = query(_ALL, registry=open_table(root, SUBSCRIPTIONS))
    return {(row["topic"], row["subscription"]) for row in rows}


def _has_messages(root: str, topic: str) -> bool:
    """Whether messages were sent to a topic, or to a partition of it."""
    with suppress(NoWarehouse):
        return any(
            query(f"SELECT 1 FROM t WHERE {of_topic_in_sql(topic)} LIMIT 1", t=open_table(root, table))  # noqa: S608 - quoted
            for table in (MESSAGES, INBOX)
        )
    return False


def _nearest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    return next(iter(get_close_matches(name, sorted(set(known)), 1, least)), None)

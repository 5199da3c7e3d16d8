"""How late deliveries were, as histograms for Prometheus: of all of them, and of each subscription."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from pipeline.config.options import Delivered
from pipeline.service.watch.line import Publication

LATE_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""Bounds of the histograms, seconds."""
MOST_SUBSCRIPTIONS = 50
"""So many subscriptions have a histogram of their own: each is fourteen lines of a page of metrics."""
OTHER = ("(other)", "(other)")
"""Topic and subscription under which all else is gathered."""
Labels = tuple[str, str]
"""A topic and a subscription, as they are printed."""


class Buckets:
    """The deliveries of commits, taken together; the client library's histogram takes them one by one."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self._within, self._count, self._sum = [0.0] * len(LATE_S), 0, 0.0

    def add(self, part: Publication) -> None:
        """Count the deliveries of a commit."""
        self._within = [known + part.within(bound) for known, bound in zip(self._within, LATE_S, strict=True)]
        self._count += part.count
        self._sum += part.sum_s

    def put(self, family: HistogramMetricFamily, *labels: str) -> None:
        """Add the figures to a family."""
        buckets = [(str(bound), within) for bound, within in zip(LATE_S, self._within, strict=True)]
        family.add_metric(labels, [*buckets, ("+Inf", float(self._count))], self._sum)


class Lateness(Collector):
    """The histogram of all deliveries."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self._lock, self._all = Lock(), Buckets()

    def add(self, part: Publication) -> None:
        """Count the deliveries of a commit."""
        with self._lock:
            self._all.add(part)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histogram as it is now."""
        family = HistogramMetricFamily("delayline_lateness_seconds", "Visible less due, of deliveries")
        with self._lock:
            self._all.put(family)
        yield family


class SubscriptionLateness(Collector):
    """A histogram for each subscription: for the first ones that get something, and one for all others."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self._lock, self._own, self._other = Lock(), dict[Labels, Buckets](), Buckets()

    def add(self, shares: Iterable[tuple[Labels, Delivered]], committed_ms: int) -> list[Labels]:
        """Count what a commit (ms UTC) delivered to subscriptions; those of them that have figures of their own."""
        found, others = list[Labels](), list[Delivered]()
        with self._lock:
            for labels, share in shares:
                own = self._figures_of(labels)
                if own is None:
                    others.append(share)
                else:
                    own.add(_publication([share], committed_ms))
                    found.append(labels)
            if others:
                self._other.add(_publication(others, committed_ms))
        return found

    def _figures_of(self, labels: Labels) -> Buckets | None:
        if len(self._own) < MOST_SUBSCRIPTIONS and labels != OTHER:
            return self._own.setdefault(labels, Buckets())
        return self._own.get(labels)

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Forget the figures of a subscription, as the metrics of the client library do."""
        with self._lock:
            self._own.pop((labels["topic"], labels["subscription"]), None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histograms as they are now."""
        text = (
            f"Visible less due, of deliveries to each of {MOST_SUBSCRIPTIONS} subscriptions; "
            "those to others are gathered under (other)"
        )
        family = HistogramMetricFamily(
            "delayline_subscription_lateness_seconds", text, labels=("topic", "subscription")
        )
        with self._lock:
            for labels, own in [*self._own.items(), (OTHER, self._other)]:
                own.put(family, *labels)
        yield family


def _publication(shares: Sequence[Delivered], committed_ms: int) -> Publication:
    first, last = min(each.first_due_ms for each in shares), max(each.last_due_ms for each in shares)
    return Publication.of(sum(each.count for each in shares), first, last, committed_ms)

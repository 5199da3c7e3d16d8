"""How late deliveries were, as histograms for Prometheus: of all of them, and of each subscription."""

from collections.abc import Iterator, Mapping
from threading import Lock

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

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

    def add(self, labels: Labels | None, part: Publication) -> bool:
        """Count deliveries of a commit to a subscription; None: nobody knows which. Whether it has its own figures."""
        with self._lock:
            if labels is not None and len(self._own) < MOST_SUBSCRIPTIONS:
                self._own.setdefault(labels, Buckets())
            own = None if labels is None else self._own.get(labels)
            (own or self._other).add(part)
            return own is not None

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

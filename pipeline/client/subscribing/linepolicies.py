"""Policies as a line of the registry has them: names as tables have them, and where acknowledgement and sinks begin."""

from __future__ import annotations

from dataclasses import replace

from pipeline.subscriptions.destination import same_topic
from pipeline.subscriptions.guards import Guard
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import plain_topic


def plain(policies: Policies) -> Policies:
    """Policies with the topic of dead letters as tables have it."""
    letters = policies.dead_letter_topic
    return policies if letters is None else replace(policies, dead_letter_topic=plain_topic(letters))


def check_guard(policies: Policies) -> None:
    """Refuse a guard that cannot be evaluated.

    Raises:
        BadValue: it is one.
    """
    if policies.guard is not None:
        Guard.of(policies.guard, policies.guard_tables).checked()


def sink_after_of(old: Policies, new: Policies) -> int | None:
    """Where a sink begins, as far as it is stated: one that stays goes on, another one does not begin where it did."""
    if new.sink is None:
        return None
    if same_topic(new.sink, old.sink):
        return old.sink_after if new.sink_after is None else new.sink_after
    return None if new.sink_after == old.sink_after else new.sink_after


def as_stated(found: Policies, new: Policies) -> Policies:
    """Policies that are there, as somebody would state them who does not say since when they hold."""
    found = replace(found, ack_after=None) if new.ack_after is None else found
    return replace(found, sink_after=None) if new.sink_after is None else found

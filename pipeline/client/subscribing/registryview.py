"""The registry for who looks at it as a whole: read once, and again when it has changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from deltalake import DeltaTable

from pipeline.client.subscribing.lines import registered_in
from pipeline.client.subscribing.subscriptions import Subscription, chosen, listed
from pipeline.delta.deltars import open_table
from pipeline.subscriptions.lines import Registered
from schemas import SUBSCRIPTIONS


@dataclass(frozen=True, eq=False)
class RegistryView:
    """What the registry says at a version.

    Attributes:
        table: at that version.
        registered: its lines, and the policies of topics.
    """

    table: DeltaTable
    registered: Registered

    @cached_property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """The active ones, by topic and name; those that nobody could follow are left out."""
        return tuple(listed(self.registered))

    def of(self, topic: str | None, name: str | None) -> list[Subscription]:
        """Those of a topic and its partitions, or of a name; None: all."""
        return chosen(self.subscriptions, topic, name)

    def is_of(self, table: DeltaTable) -> bool:
        """Whether a table says the same."""
        return table.version() == self.table.version() and table.metadata().id == self.table.metadata().id


def registry_view(root: str, known: RegistryView | None = None) -> RegistryView:
    """The registry as it is now; what is known of it already when it has not changed.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    table = open_table(root, SUBSCRIPTIONS)
    return known if known is not None and known.is_of(table) else RegistryView(table, registered_in(table))

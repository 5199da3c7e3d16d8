"""What a table contract is."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Table:
    """A table contract: its folder name, its columns, who writes it, and properties beyond the common ones."""

    name: str
    columns: Columns
    writer: str
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> "StructType":
        """The columns as Spark has them; only who asks for it loads Spark."""
        return self.columns.struct

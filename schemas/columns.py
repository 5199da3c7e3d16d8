"""Columns of tables in plain Python, in the words of Spark's and Delta's JSON: they can be read without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Kind = str
"""A type, as JSON: a name in quotes, or an object."""
TEXT, LONG, TIME, BYTES, FLAG = '"string"', '"long"', '"timestamp"', '"binary"', '"boolean"'
TEXT_MAP = '{"type":"map","keyType":"string","valueType":"string","valueContainsNull":true}'


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: its name.
        kind: its type.
        nullable: whether it may be NULL.
    """

    name: str
    kind: Kind
    nullable: bool

    def as_dict(self) -> dict[str, object]:
        """As Spark's JSON has a field of a struct."""
        return {"name": self.name, "type": json.loads(self.kind), "nullable": self.nullable, "metadata": {}}


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in order."""

    fields: tuple[Column, ...] = ()

    @classmethod
    def of(cls, *columns: tuple[str, Kind], optional: tuple[str, ...] = ()) -> Columns:
        """Columns that are required, but for the named ones."""
        return cls(tuple(Column(name, kind, name in optional) for name, kind in columns))

    def and_optional(self, *columns: tuple[str, Kind]) -> Columns:
        """These, and others behind them that may be NULL."""
        return Columns((*self.fields, *(Column(name, kind, nullable=True) for name, kind in columns)))

    @property
    def names(self) -> list[str]:
        """The names."""
        return [each.name for each in self.fields]

    @cached_property
    def struct(self) -> StructType:
        """These as Spark has them; only who asks for it loads Spark."""
        from pyspark.sql.types import StructType  # noqa: PLC0415 - clients work without

        return StructType.fromJson(json.loads(self.json()))

    def json(self) -> Kind:
        """A struct of these, as Spark and Delta write it."""
        return json.dumps({"type": "struct", "fields": [each.as_dict() for each in self.fields]})


def listed(of: Kind) -> Kind:
    """The type of a list of values of a type."""
    return json.dumps({"type": "array", "elementType": json.loads(of), "containsNull": True})

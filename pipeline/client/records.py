"""Records: classes of a program whose attributes have types, named as in the reference. `JsonSchema` encodes them.

    class Order(Record):
        id = Integer(required=True)
        lines = Array(String())

A value of another type is a `TypeError`, where it is set.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


class Field:
    """An attribute of a record: what it may be, and what it is when nobody says so."""

    kinds: ClassVar[tuple[type, ...]] = (object,)
    usual: ClassVar[Any] = None

    def __init__(self, default: Any = None, *, required: bool = False) -> None:  # noqa: ANN401 - of the type of the field
        """An attribute.

        Args:
            default: what it is when nobody says so; None: as the type has it.
            required: None is refused.

        Raises:
            TypeError: the default is of another type.
        """
        self._required = required
        self._default = self.usual if default is None else self.checked("default", default)

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # noqa: ANN401 - the same
        """The field, of a class. A record has the value among its own attributes, so this is not asked then."""
        return self

    def missing(self) -> Any:  # noqa: ANN401 - the same
        """The value when nobody gives one."""
        return self._default

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - whatever a program gives
        """The value that the attribute has from then on.

        Raises:
            TypeError: it is of another type.
        """
        if value is None and not self._required:
            return self._default
        if not isinstance(value, self.kinds):
            message = f"{name} = {value!r}, allowed: {' or '.join(each.__name__ for each in self.kinds)}"
            raise TypeError(message)
        return value


class Null(Field):
    """None."""

    kinds = (type(None),)


class Boolean(Field):
    """A truth; false when nobody says so."""

    kinds, usual = (bool,), False


class Integer(Field):
    """A whole number."""

    kinds = (int,)


class Long(Integer):
    """A whole number. JSON has one kind of them."""


class Float(Field):
    """A number."""

    kinds = (float, int)


class Double(Float):
    """A number. JSON has one kind of them."""


class String(Field):
    """A text."""

    kinds = (str,)


class Bytes(Field):
    """Bytes that are a text in UTF-8, which JSON can hold."""

    kinds = (bytes,)

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        """Bytes; a text, as JSON has it, becomes them.

        Raises:
            TypeError: it is neither.
        """
        return super().checked(name, value.encode() if isinstance(value, str) else value)


class CustomEnum(Field):
    """A member of an enumeration, which JSON has as its value. A program may name the enumeration itself instead."""

    def __init__(self, enum_type: type[Enum], default: Any = None, *, required: bool = False) -> None:  # noqa: ANN401 - a member
        """A member of this enumeration; the rest as for any field."""
        self._members = enum_type
        super().__init__(default, required=required)

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        """The member; a name or a value, as JSON has it, becomes it.

        Raises:
            TypeError: there is no such member.
        """
        if value is None and not self._required:
            return self._default
        try:
            return self._members[value] if value in self._members.__members__ else self._members(value)
        except (TypeError, ValueError) as error:
            message = f"{name} = {value!r}, allowed: {', '.join(self._members.__members__)}"
            raise TypeError(message) from error


class Array(Field):
    """A list of one type."""

    kinds = (list,)

    def __init__(self, array_type: Any, default: Any = None, *, required: bool = False) -> None:  # noqa: ANN401 - a field or a record
        """A list of this; the rest as for any field."""
        self._of = field_of(array_type)
        super().__init__(default, required=required)

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        """The list.

        Raises:
            TypeError: it is none, or one in it is of another type.
        """
        found = super().checked(name, value)
        return found if found is None else [self._of.checked(name, each) for each in found]


class Map(Field):
    """Values of one type by texts."""

    kinds = (dict,)

    def __init__(self, value_type: Any, default: Any = None, *, required: bool = False) -> None:  # noqa: ANN401 - as above
        """Values of this; the rest as for any field."""
        self._of = field_of(value_type)
        super().__init__(default, required=required)

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        """The map.

        Raises:
            TypeError: it is none, or a name or a value in it is of another type.
        """
        found = super().checked(name, value)
        if found is None:
            return None
        names = String(required=True)
        return {names.checked(name, key): self._of.checked(name, each) for key, each in found.items()}


class _Part(Field):
    """A record within a record. One that nobody gives is one of defaults."""

    def __init__(self, record: type[Record]) -> None:
        super().__init__()
        self._record = record

    def missing(self) -> Record:
        return self._record()

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        if value is None or isinstance(value, self._record):
            return value
        if not isinstance(value, dict):
            message = f"{name} = {value!r}, allowed: a {self._record.__name__}"
            raise TypeError(message)
        return self._record(**value)


def field_of(declared: Any) -> Field:  # noqa: ANN401 - what stands in the body of a class
    """The field that a declaration means: a field, a record or an enumeration.

    Raises:
        TypeError: it means none.
    """
    if isinstance(declared, Field):
        return declared
    if isinstance(declared, Record):
        return _Part(type(declared))
    if isinstance(declared, type) and issubclass(declared, Record):
        return _Part(declared)
    if isinstance(declared, type) and issubclass(declared, Enum):
        return CustomEnum(declared)
    message = f"{declared!r}, allowed: a field, a record or an enumeration"
    raise TypeError(message)


class Record:
    """A class of a program, whose attributes are fields."""

    _fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        """Take the fields from the body of the class."""
        own = dict[str, Field]()
        for name, declared in vars(cls).items():
            if not name.startswith("_"):
                try:
                    own[name] = field_of(declared)
                except TypeError:
                    continue  # A method, or a constant of the program.
        cls._fields = {**cls._fields, **own}

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - of the types of the fields
        """With these values. Others than those of fields are left out: a newer writer may have more.

        Raises:
            TypeError: one is of another type.
        """
        for name, field in self._fields.items():
            if name in values:
                setattr(self, name, values[name])
            else:
                vars(self)[name] = field.missing()

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - the same
        """Set an attribute.

        Raises:
            AttributeError: it is no field.
            TypeError: the value is of another type.
        """
        if name not in self._fields:
            message = f"{type(self).__name__} has no field {name!r}"
            raise AttributeError(message)
        vars(self)[name] = self._fields[name].checked(name, value)

    def __eq__(self, other: object) -> bool:
        """Whether all fields of two records of a class are equal."""
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # its fields change

    def __repr__(self) -> str:
        """Its class and its fields."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

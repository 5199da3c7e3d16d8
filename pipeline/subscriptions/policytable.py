"""How policies are stated: a policy is a row of a table, and its checks, options, lines for people and pages follow.

Policies are a map of texts in the registry, so that any Delta writer can set them. They are checked when the client or
the command sets them, and again by whoever follows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_type_hints

from pipeline.config.errors import BadValue, check_text
from pipeline.config.spelling import range_text

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class Within:
    """The numbers that can be followed.

    Attributes:
        low: the smallest one.
        high: the largest one.
        off: one below these that can be followed, too: what the policy asks for is off.
        not_below: the policy of the table below whose number this one may not be.
    """

    low: int
    high: int
    off: int | None = None
    not_below: str | None = None


@dataclass(frozen=True)
class Text:
    """The texts that can be followed.

    Attributes:
        allowed: what such a text is.
        choices: these; none: all others.
        blank: whether blanks alone are such a text.
    """

    allowed: str
    choices: tuple[str, ...] = ()
    blank: bool = True

    def has(self, text: str) -> bool:
        """Whether a text is one of them."""
        return text in self.choices if self.choices else bool(text if self.blank else text.strip())


@dataclass(frozen=True)
class Option:
    """How the command takes a policy.

    Attributes:
        help: for people.
        metavar: what it takes, where that is neither a flag nor a duration nor one of the choices.
        unset: what it says of the default.
        flag: the name, where it is not that of the policy.
    """

    help: str
    metavar: str | None = None
    unset: str | None = None
    flag: str | None = None


@dataclass(frozen=True)
class Shown:
    """What `policy show` says of a policy. The lines have its value, or those of others by their names.

    Attributes:
        line: about any value but None.
        of: about single values.
    """

    line: str = ""
    of: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A policy. What stands beside it in the annotation of a field completes it, and so does the field.

    Attributes:
        needs: the policy of the table without which it has no effect.
        belongs_to: the policy of the table with which it is followed, or not.
        shapes: dispatch follows it.
        within: the numbers that can be followed.
        text: the texts that can be followed; None: any.
        option: how the command takes it; None: it does not.
        shown: what `policy show` says of it.
        name: as the registry has it.
        kind: the type of its values: flags, whole numbers, or texts.
        optional: whether its value may be None.
        default: the value that the registry does not have.
    """

    needs: str | None = None
    belongs_to: str | None = None
    shapes: bool = False
    within: Within = Within(0, 0)
    text: Text | None = None
    option: Option | None = None
    shown: Shown = Shown()
    name: str = ""
    kind: type = str
    optional: bool = False
    default: Any = None

    @classmethod
    def of_field(cls, name: str, hint: Any, default: Any) -> Row | None:  # noqa: ANN401 - any annotation, any value
        """The policy of a field; None: it is of something else."""
        values, *stated = get_args(hint) or (hint,)
        beside = {_PLACES[type(each)]: each for each in stated if type(each) in _PLACES}
        row = next((each for each in stated if isinstance(each, Row)), Row())
        kinds = get_args(values) or (values,)
        row = replace(row, name=name, kind=kinds[0], optional=NoneType in kinds, default=default, **beside)
        return row if stated else None

    @property
    def is_duration(self) -> bool:
        """Whether its numbers are ms."""
        return self.name.endswith("_ms")

    @property
    def flag(self) -> str:
        """The option of the command."""
        own = None if self.option is None else self.option.flag
        return own or f"--{self.name.removesuffix('_ms').replace('_', '-')}"

    def of_text(self, text: str) -> bool | int | str:
        """A value from the text of the registry.

        Raises:
            BadValue: it is none.
        """
        if self.kind is bool:
            if text not in _FLAGS:
                raise BadValue(self.name, text, ", ".join(_FLAGS))
            return _FLAGS[text]
        try:
            return text if self.kind is str else int(text)
        except ValueError as error:
            raise BadValue(self.name, text, "a whole number") from error

    def check(self, value: Any, least: int | None) -> None:  # noqa: ANN401 - a program may state anything
        """Refuse a value that cannot be followed; `least` is the number that it may not be below.

        Raises:
            BadValue: it cannot.
        """
        if (value is None and self.optional) or (value == self.within.off and value is not None):
            return
        low = self.within.low if least is None else max(self.within.low, least)
        fits = isinstance(value, self.kind) and isinstance(value, bool) == (self.kind is bool)
        if fits and self.kind is int:
            fits = low <= value <= self.within.high
        elif fits and self.kind is str:
            check_text(self.name, value)
            fits = self.text is None or self.text.has(value)
        if not fits:
            raise BadValue(self.name, value, self._allowed(low))

    def _allowed(self, low: int) -> str:
        """What may be said of it, from a number on."""
        if self.kind is bool:
            return ", ".join(_FLAGS)
        if self.kind is int:
            return f"a whole number in {range_text(self.name, low, self.within.high)}"
        return "a text" if self.text is None else self.text.allowed


_PLACES = {Within: "within", Text: "text", Option: "option", Shown: "shown"}


@dataclass(frozen=True)
class PolicyTable:
    """Policies, one field each, as texts of the registry by the same names.

    Attributes:
        rows: what holds of each policy, by name.
    """

    rows: ClassVar[Mapping[str, Row]] = {}
    _together: ClassVar[list[list[str]]] = []

    def __init_subclass__(cls) -> None:
        """Complete the rows from the fields that they annotate."""
        hints = get_type_hints(cls, include_extras=True)
        rows = [Row.of_field(name, hint, vars(cls).get(name)) for name, hint in hints.items()]
        cls.rows = {row.name: row for row in rows if row is not None}
        heads = dict.fromkeys(row.belongs_to or name for name, row in cls.rows.items())
        cls._together = [[name for name, row in cls.rows.items() if head in (name, row.belongs_to)] for head in heads]

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        for row in self.rows.values():
            value = getattr(self, row.name)
            # Most policies of most lines are the defaults, and a registry may have ten thousand lines.
            bound = row.within.not_below
            if value is not row.default or bound is not None:
                row.check(value, None if bound is None else getattr(self, bound))

    def as_map(self) -> dict[str, str]:
        """The texts of the registry: those that differ from the defaults."""
        values = ((row, getattr(self, row.name)) for row in self.rows.values())
        return {row.name: _text(value) for row, value in values if value != row.default}

    @classmethod
    def check_names(cls, names: Any) -> None:  # noqa: ANN401 - names in any form
        """Refuse a name that is no policy of this table.

        Raises:
            BadValue: one is.
        """
        for name in names:
            if name not in cls.rows:
                raise BadValue("policy", name, ", ".join(cls.rows))

    @classmethod
    def of_map(cls, texts: Mapping[str, str | None] | None) -> Self:
        """From the texts of the registry.

        Raises:
            BadValue: a name that is no policy of this table, or a value that cannot be followed.
        """
        cls.check_names(texts or ())
        return cls(**cls._values(texts or {}))

    @classmethod
    def followed(cls, texts: Mapping[str, str | None] | None, beside: Mapping[str, Any] | None = None) -> Self:
        """What is followed of texts of the registry, whatever they say: each policy by itself.

        One that cannot be followed is the default, and so is the one that it belongs to. Other names do not count. The
        texts of those that `beside` gives do not count either, and what belongs to them has to fit these values.
        """
        texts, beside = texts or {}, beside or {}
        found = cls()
        for names in cls._together:
            rest = {name: texts.get(name) for name in names if name not in beside}
            if any(text is not None for text in rest.values()):
                with suppress(BadValue):
                    stated = {name: beside[name] for name in names if name in beside}
                    found = replace(found, **cls._values(rest), **stated)
        return found

    @classmethod
    def changed(cls, texts: Mapping[str, str | None], values: Mapping[str, Any]) -> Self:
        """What texts of the registry become when some policies are set: of the others what can be followed then.

        Raises:
            BadValue: the policies that are set cannot be followed, or not beside the others.
        """
        return replace(cls.followed(texts, values), **values)

    @classmethod
    def _values(cls, texts: Mapping[str, str | None]) -> dict[str, Any]:
        return {name: cls.rows[name].of_text(text) for name, text in texts.items() if text is not None}


def _text(value: bool | int | str) -> str:  # noqa: FBT001 - a value, not a switch
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Profiles: what a start needs, from TOML files, each laid over the one before. A name that is not known is refused.

What a profile does not state, and what follows from rate and machine, is chosen where it meets a warehouse (`fitted`).
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from pipeline.config.errors import BadSetting
from pipeline.config.options import Options, Watching
from pipeline.config.session import Machine
from pipeline.config.settings import DAY_MS, MINUTE_MS, SECOND_MS, LiveClock, Settings, Upkeep, check, check_text
from pipeline.config.sizing import Choice, SizingInputs, choose
from pipeline.config.sources import Source, sources_of

_WATCHED = ("metrics_port", "progress_log", "metrics_address")
_UPKEEP = {
    "maintain_ms": "every_ms",
    "retain_ms": "retain_ms",
    "retain_deliveries_ms": "retain_deliveries_ms",
    "retain_dead_letters_ms": "retain_dead_letters_ms",
    "retain_log_ms": "retain_log_ms",
}
"""Keys of `run`, and what they are called in `Upkeep`."""
T = TypeVar("T", Settings, LiveClock, Machine)
Layer = tuple[str, Mapping[str, Any]]
"""Where some settings stand, for people; and their tables, as TOML has them."""
_FORM = "SECTION.NAME=VALUE, as in settings.driver_rows=0; of a source source.SOURCE.NAME=VALUE"
_SOURCE = "source"
"""The section whose values are tables."""


@dataclass(frozen=True)
class Profile:
    """The session of a local start, the options of the stages, and how they may be watched.

    `origins` says of each name that is stated, as `section.name`, where it stands: these values are not chosen.
    `sources` are followed beside the stages.
    """

    machine: Machine
    options: Options
    watching: Watching = field(default_factory=Watching)
    origins: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()

    @property
    def stated(self) -> frozenset[str]:
        """The names whose values are not chosen."""
        return frozenset(self.origins)


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        BadSetting: a table or key that is not known, a value in the place of a table, or one outside its range; or the
            file is no TOML.
        OSError: the file cannot be read.
    """
    return profile_of(file_layer(path))


def file_layer(path: Path) -> Layer:
    """The settings of a file.

    Raises:
        OSError: the file cannot be read.
        BadSetting: it is not TOML.
    """
    try:
        return path.name, tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting("profile", str(path), f"a file of TOML ({error})") from error


def stated_layer(where: str, texts: Sequence[str]) -> Layer:
    """Settings from texts `SECTION.NAME=VALUE`; a value is as in TOML, and a text where that is no TOML.

    Raises:
        BadSetting: a text has another form.
    """
    tables = dict[str, Any]()
    for text in texts:
        name, sign, value = text.partition("=")
        *sections, key = (each.strip() for each in name.split("."))
        most = 2 if sections[:1] == [_SOURCE] else 1
        table: Any = tables
        for section in sections:
            table = table.setdefault(section, {}) if isinstance(table, dict) else None
        if not (sign and 1 <= len(sections) <= most and all((*sections, key)) and isinstance(table, dict)):
            raise BadSetting(where, text, _FORM)
        try:
            table[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[key] = value.strip()
    return where, tables


def profile_of(*layers: Layer) -> Profile:
    """The profile that some layers come to: of each name the last value counts.

    Raises:
        BadSetting: as for `read_profile`.
    """
    file, origins = dict[str, dict[str, Any]](), dict[str, str]()
    for where, tables in layers:
        _known("profile", tables, {"session", "run", "settings", "clock", _SOURCE})
        for section, values in tables.items():
            if not isinstance(values, Mapping):
                raise BadSetting(section, values, f"a table: [{section}]")
            for name, value in values.items():
                under = file.setdefault(section, {})
                # A source is a table of its own.
                both = isinstance(value, Mapping) and isinstance(under.get(name), Mapping)
                under[name] = {**under[name], **value} if both else value
                origins[f"{section}.{name}"] = where
    run = file.get("run", {})
    _known("run", run, {"trigger", *_WATCHED, *_UPKEEP})
    for name in {"trigger", "progress_log"} & run.keys():
        check_text(f"run.{name}", run[name])
    clock = _made(LiveClock, "clock", file.get("clock", {}))
    settings = _made(Settings, "settings", file.get("settings", {}))
    options = Options(clock, settings, run.get("trigger"), _upkeep(run))
    watching = Watching(**{name: run[name] for name in _WATCHED if name in run})
    machine, sources = _made(Machine, "session", file.get("session", {})), sources_of(file.get(_SOURCE, {}))
    return Profile(machine, options, watching, origins, sources)


def values(profile: Profile) -> Iterator[tuple[str, Any]]:
    """All settings by name, as `section.name`; None: it is not set."""
    options, upkeep = profile.options, profile.options.upkeep
    for each in fields(Machine):
        yield f"session.{each.name}", getattr(profile.machine, each.name)
    yield "run.trigger", options.trigger
    for key, name in _UPKEEP.items():
        yield f"run.{key}", (0 if key == "maintain_ms" else None) if upkeep is None else getattr(upkeep, name)
    for name in _WATCHED:
        yield f"run.{name}", getattr(profile.watching, name)
    for section, held in (("settings", options.settings), ("clock", options.clock)):
        for each in fields(held):
            yield f"{section}.{each.name}", getattr(held, each.name)
    for source in profile.sources:
        for each in fields(source):
            value = getattr(source, each.name)
            if each.name != "name" and value != each.default:
                yield source.field(each.name), value


def fitted(profile: Profile, place: SizingInputs) -> tuple[Profile, list[Choice]]:
    """The profile with what it leaves open chosen for a place, and the choices."""
    options = profile.options
    choices = choose(place, options.settings, options.clock, profile.stated)
    of: dict[str, dict[str, Any]] = {"session": {}, "settings": {}, "clock": {}}
    for each in choices:
        section, _, name = each.name.partition(".")
        of[section][name] = each.value
    settings, clock = replace(options.settings, **of["settings"]), replace(options.clock, **of["clock"])
    machine = replace(profile.machine, **of["session"])
    return replace(profile, machine=machine, options=replace(options, settings=settings, clock=clock)), choices


def _upkeep(run: Mapping[str, Any]) -> Upkeep | None:
    """What maintenance keeps; None: there is none, without a pause between its rounds, or with 0.

    A wrong value is named as it stands there.
    """
    values = {name: run[key] for key, name in _UPKEEP.items() if key in run}
    if values.get("every_ms") == 0 and not isinstance(values["every_ms"], bool):
        return None
    for key in _UPKEEP.keys() & run.keys():
        check(f"run.{key}", run[key], SECOND_MS if key == "maintain_ms" else MINUTE_MS, 366 * DAY_MS)
    return Upkeep(**values) if "every_ms" in values else None


def _made(kind: type[T], section: str, values: Mapping[str, Any]) -> T:
    _known(section, values, {each.name for each in fields(kind)})
    return kind(**values)


def _known(section: str, values: Mapping[str, Any], names: set[str]) -> None:
    unknown = sorted(set(values) - names)
    if unknown:
        raise BadSetting(f"{section}.{unknown[0]}", values[unknown[0]], ", ".join(sorted(names)))

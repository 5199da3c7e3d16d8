"""Profiles: what a start needs, from a TOML file. A name that is not known is refused, not ignored.

What a profile does not state, and what follows from rate and machine, is chosen where it meets a warehouse (`fitted`).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from pipeline.config.errors import BadSetting
from pipeline.config.options import Options, Watching
from pipeline.config.session import Machine
from pipeline.config.settings import DAY_MS, MINUTE_MS, SECOND_MS, LiveClock, Settings, Upkeep, check
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


@dataclass(frozen=True)
class Profile:
    """The session of a local start, the options of the stages, and how they may be watched.

    `stated` has the names that the file has, as `section.name`: their values are not chosen. `sources` are followed
    beside the stages.
    """

    machine: Machine
    options: Options
    watching: Watching = field(default_factory=Watching)
    stated: frozenset[str] = frozenset()
    sources: tuple[Source, ...] = ()


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        BadSetting: a table or key that is not known, a value in the place of a table, or one outside its range.
        OSError: the file cannot be read.
        tomllib.TOMLDecodeError: it is not TOML.
    """
    file: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    _known("profile", file, {"session", "run", "settings", "clock", "source"})
    for name, values in file.items():
        if not isinstance(values, dict):
            raise BadSetting(name, values, f"a table: [{name}]")
    run = file.get("run", {})
    _known("run", run, {"trigger", *_WATCHED, *_UPKEEP})
    clock = _made(LiveClock, "clock", file.get("clock", {}))
    settings = _made(Settings, "settings", file.get("settings", {}))
    options = Options(clock, settings, run.get("trigger"), _upkeep(run))
    watching = Watching(**{name: run[name] for name in _WATCHED if name in run})
    stated = frozenset(f"{section}.{name}" for section, values in file.items() for name in values)
    machine, sources = _made(Machine, "session", file.get("session", {})), sources_of(file.get("source", {}))
    return Profile(machine, options, watching, stated, sources)


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
    """What maintenance keeps; None without a pause between its rounds. A wrong value is named as it stands there."""
    values = {name: run[key] for key, name in _UPKEEP.items() if key in run}
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

"""`delayline config show`, and the profile of a start: files and the command line, each laid over the one before."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jobs.commands.durations import UNITS_MS
from pipeline.config.profiles import Profile, file_layer, fitted, profile_of, stated_layer, values
from pipeline.config.sizing import DEFAULT_RATE, SizingInputs, segment_for
from pipeline.config.spelling import spell
from pipeline.delta.deltars import open_table
from pipeline.delta.tables import place
from pipeline.delta.warehouse import Warehouse
from schemas import SEGMENTS

PROFILE = Path(__file__).resolve().parents[2] / "conf" / "local.toml"
SET = "--set"
"""The option that states a setting."""
_DEFAULT, _UNSET, _LATER = "default", "not set", "chosen at the start; --warehouse says for which one"
_ANYWHERE = SizingInputs(DEFAULT_RATE, segment_for(DEFAULT_RATE), 1, 1 << 30)


@dataclass(frozen=True)
class Setting:
    """A setting as a start has it.

    Attributes:
        setting: its name, as `section.name`.
        value: as TOML has it; None: it is not set, or a start chooses it.
        origin: where it stands, or why it was chosen.
    """

    setting: str
    value: str | None
    origin: str


def profile_from(path: Path | None, texts: Sequence[str] = (), metrics_port: int | None = None) -> Profile:
    """The profile of a start: `conf/local.toml`, over it a file, over that what the command line states.

    Args:
        path: the file; None: there is none.
        texts: settings, as `SECTION.NAME=VALUE`.
        metrics_port: the port at which metrics are served; None: as the profile says.

    Raises:
        BadSetting: a name is not known, or a value outside its range.
    """
    files = [PROFILE] if path is None else [PROFILE, path]
    layers = [*map(file_layer, files), stated_layer(SET, texts)]
    if metrics_port is not None:
        layers.append(("--metrics-port", {"run": {"metrics_port": metrics_port}}))
    return profile_of(*layers)


def place_of(root: str, profile: Profile) -> SizingInputs:
    """What the sizes of a warehouse follow from on this machine.

    Raises:
        NoWarehouse: the folder has no table of segments.
        BadSetting: the warehouse states a rate that is none.
    """
    open_table(root, SEGMENTS)
    return place(Warehouse(root), profile.machine.cores)


def shown(profile: Profile, place: SizingInputs | None) -> Iterator[Setting]:
    """The settings of a profile, and where each comes from.

    Args:
        profile: the profile.
        place: what sizes follow from; None: those that follow from a warehouse are left out.
    """
    whole, choices = fitted(profile, place or _ANYWHERE)
    chosen = {each.name: _LATER if place is None else f"chosen: {each.why}" for each in choices}
    origins: Mapping[str, str] = {**chosen, **profile.origins}
    for name, value in values(whole):
        # A source is one thing.
        where = origins.get(name) or origins.get(name.rpartition(".")[0], _DEFAULT)
        is_known = value is not None and where != _LATER
        yield Setting(name, _toml(value) if is_known else None, _UNSET if value is None else where)


def lines(settings: Sequence[Setting]) -> Iterator[str]:
    """The same for people, as a profile that can be saved and read."""
    for number, (section, found) in enumerate(groupby(settings, lambda each: each.setting.rpartition(".")[0])):
        yield from [""] * bool(number)
        yield f"[{section}]"
        for each in found:
            name = each.setting.rpartition(".")[2]
            about = f"{_spelled(each)}{each.origin}"
            yield f"# {name}: {about}" if each.value is None else f"{name} = {each.value}  # {about}"


def _spelled(setting: Setting) -> str:
    """A duration in the words of people."""
    ms = (setting.value or "").replace("_", "")
    is_long = setting.setting.endswith("_ms") and ms.isdecimal() and int(ms) >= UNITS_MS["s"]
    return f"{spell(int(ms))}; " if is_long else ""


def _toml(value: Any) -> str:  # noqa: ANN401 - of any setting
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return f"{value:_}"
    return f"[{', '.join(map(_toml, value))}]"

"""Writes `docs/settings.md` from the code: names, ranges, defaults and meanings of all that a profile may state.

`make docs` runs it; a unit test fails while the page is not what it writes. A meaning is what the docstring of the
setting's class says; a range is what the profile's reader says when it refuses a value.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs.commands.sizes import lines
from pipeline.config import profiles
from pipeline.config.errors import BadSetting
from pipeline.config.options import Options, Watching
from pipeline.config.profiles import fitted, read_profile
from pipeline.config.session import Machine
from pipeline.config.settings import LiveClock, Settings, Upkeep
from pipeline.config.sizing import SizingInputs, segment_for
from pipeline.config.sources import KEYS, Source
from tests.support.modules import ROOT

PAGE = ROOT / "docs" / "settings.md"
LOCAL = ROOT / "conf" / "local.toml"
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_RATE = 20_000
_HEAD = """
# Settings

`make docs` writes this page from the code; do not edit it.

A *profile* is a TOML file with the tables below. `delayline run` and `replay` read `conf/local.toml`. What the file of
`--profile` states is laid over that, and what `--set NAME=VALUE` states over both: `--set settings.driver_rows=0`.
`delayline config show` prints all settings, as a profile, each with the place where it is stated; with `--warehouse`
also what a start would choose. A main for spark-submit reads its profile alone. A name that is not known is refused.
Durations are in milliseconds (`_ms`), sizes in bytes (`_bytes`). A change counts from the next batch on.
`conf/production.toml` is an example with every name, and with reasons to change each of them.
"""
_ABOUT = {
    "session": "The Spark session. Under spark-submit only `partitions` counts; spark-submit brings the rest.",
    "run": "The job around the stages. Without `maintain_ms`, or with 0, it does no maintenance.",
    "settings": "Sizes and limits of the stages.",
    "clock": "The live clock.",
}
_SOURCE = """
## `[source.NAME]`

A source that is followed beside the stages (`docs/kafka.md`); there may be several, each with a name of its own. `from`
is required. The columns are SQL expressions; what a profile does not state is as the source has it.

| Name | Meaning | Default |
|---|---|---|
"""
_CHOSEN = """
## What a start chooses

`delayline init --rate N` states once how many messages a second the busiest topic of a warehouse is expected to get.
Each start chooses the settings marked *chosen* from that rate, from the cores and from the memory. It prints what it
chose, and why. A profile that states one of them wins. An example, made with `delayline init --rate 20000`:
"""
_HERE = {
    "cores": "all that the process may use",
    "memory": "`2g`; half of the memory where that is less",
}
"""Defaults that follow from where a start runs."""
_ENVIRONMENT = """
## Environment variables

| Name | Meaning |
|---|---|
| `DELAYLINE_WAREHOUSE` | the warehouse of all commands, instead of `--warehouse` |
| `DELAYLINE_DEBUG` | any value: an error of a command shows its stack trace |
| `JAVA_HOME` | the Java that Spark starts; without it the one in `PATH` |
| `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` | keys of a store that speaks S3 |
| `AWS_REGION`, `AWS_ENDPOINT_URL` | its region, and its address when it is not Amazon's |
| `AWS_ALLOW_HTTP` | `true`: its address may begin with `http:` |
| `AWS_VIRTUAL_HOSTED_STYLE_REQUEST` | `true`: the bucket is part of the host's name |
"""


@dataclass(frozen=True)
class Setting:
    """A name of a profile, with its default as TOML writes it; empty: there is none."""

    section: str
    name: str
    default: str
    meaning: str

    @property
    def key(self) -> str:
        """As messages name it."""
        return f"{self.section}.{self.name}"


def settings() -> Iterator[Setting]:
    """All names, by table of a profile."""
    yield from _of("session", Machine)
    yield Setting("run", "trigger", "", meanings(Options)["trigger"])
    for name, field in profiles._UPKEEP.items():
        default = "" if name == "maintain_ms" else _default(Upkeep, field)
        yield Setting("run", name, default, meanings(Upkeep)[field])
    yield from _of("run", Watching)
    yield from _of("settings", Settings)
    yield from _of("clock", LiveClock)


def page() -> str:
    """The whole page."""
    place = SizingInputs(_RATE, segment_for(_RATE), cores=8, memory=16_000_000_000)
    choices = fitted(read_profile(LOCAL), place)[1]
    chosen = {each.name for each in choices}
    local = tomllib.loads(LOCAL.read_text(encoding="utf-8"))
    tables = (_table(section, chosen, local.get(section, {})) for section in _ABOUT)
    example = "\n".join(["```", *lines(place, choices), "```"])
    keys = ((key, key.replace("from", "address")) for key in KEYS)
    about = meanings(Source)
    source = "\n".join(f"| `{key}` | {about[name]} | {_default(Source, name, '')} |" for key, name in keys)
    return (
        "\n".join(
            [_HEAD.strip(), *tables, _SOURCE.rstrip(), source, _CHOSEN.rstrip(), "", example, _ENVIRONMENT.rstrip()]
        )
        + "\n"
    )


def _table(section: str, chosen: set[str], local: dict[str, Any]) -> str:
    head = ["", f"## `[{section}]`", "", _ABOUT[section], ""]
    head += ["| Name | Meaning | Allowed | Default | `conf/local.toml` |", "|---|---|---|---|---|"]
    rows = [
        f"| `{each.name}` | {each.meaning} | {_allowed(each)} "
        f"| {'*chosen*' if each.key in chosen else each.default} | {_toml(local.get(each.name))} |"
        for each in settings()
        if each.section == section
    ]
    return "\n".join([*head, *rows])


def _of(section: str, kind: type) -> Iterator[Setting]:
    about = meanings(kind)
    for each in fields(kind):
        yield Setting(section, each.name, _default(kind, each.name), about[each.name])


def meanings(kind: type) -> dict[str, str]:
    """What the docstring of a class says of its attributes."""
    attributes = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2]
    found = _ATTRIBUTE.findall(attributes.partition("\nRaises:")[0])
    return {name: re.sub(r"\s+", " ", text).replace("None: ", "without it ").rstrip(".") for name, text in found}


def _default(kind: type, name: str, missing: str | None = None) -> str:
    (field,) = (each for each in fields(kind) if each.name == name)
    if field.default is not MISSING:
        return _toml(field.default)
    return _HERE[name] if missing is None else missing


def _toml(value: object) -> str:
    """A value as a profile states it."""
    match value:
        case None | "":
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{list(value)}`"
        case int():
            return f"`{value:_}`"
        case _:
            return f"`{value}`"


def _allowed(setting: Setting) -> str:
    """The range that is named when a profile states a value that no setting takes."""
    with TemporaryDirectory() as folder:
        wrong = Path(folder, "wrong.toml")
        wrong.write_text(f"[{setting.section}]\n{setting.name} = -1\n", encoding="utf-8")
        try:
            read_profile(wrong)
        except BadSetting as refused:
            return re.sub(r"\d{5,}", lambda found: f"{int(found[0]):_}", refused.allowed).replace("..", " to ")
    raise AssertionError(setting)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

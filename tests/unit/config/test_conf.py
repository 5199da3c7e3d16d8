"""What lies in `conf/` can be read, names nothing unknown, and agrees with the code."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from socket import socket

import pytest

pytest.importorskip("pyspark", reason="profiles are read by the stages, which need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from jobs.commands.profiles import PROFILE, profile_from, shown
from jobs.commands.profiles import lines as shown_lines
from jobs.commands.sizes import lines
from jobs.commands.spark import LOG4J
from pipeline.config.errors import BadSetting
from pipeline.config.options import Options, Watching
from pipeline.config.profiles import Profile, fitted, read_profile
from pipeline.config.session import CORRECTNESS, COST, SOCKETS, Machine
from pipeline.config.settings import DAY_MS, HOUR_MS, MINUTE_MS, LiveClock, Settings, Upkeep
from pipeline.config.sizing import SizingInputs, cores_here
from pipeline.service.watch.process import check_port
from tests.support.modules import ROOT

CONF = ROOT / "conf"
PROFILES = sorted(CONF.glob("*.toml"))
PLACE = SizingInputs(rate=4_000, segment_ms=MINUTE_MS, cores=6, memory=4_000_000_000)
CHOSEN = {
    "session.partitions": 1,
    "settings.horizon_ms": HOUR_MS,
    "settings.partitions": 6,
    "settings.driver_rows": 500_000,
    "settings.max_bytes": 16_000_000,
    "clock.max_step_ms": 2 * MINUTE_MS,
}


def pairs(path: Path, sign: str | None) -> dict[str, str]:
    """The lines of a file of properties, comments left out; names and values are parted by a sign, or by spaces."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    parted = (line.split(sign, 1) for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in parted}


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_a_profile_can_be_read(path: Path) -> None:
    """A wrong name or value in it is refused, so what is read is all there."""
    assert isinstance(read_profile(path), Profile)


def test_the_profile_of_the_command_says_what_holds_without_one() -> None:
    """Whoever copies it and leaves out a line gets the same; what is in `run`, and how Java compiles, is added."""
    assert PROFILE == CONF / "local.toml"
    options = Options(LiveClock(), upkeep=Upkeep(retain_log_ms=HOUR_MS))
    found = read_profile(PROFILE)
    assert replace(found, origins={}) == Profile(Machine(java_options=found.machine.java_options), options)
    assert "TieredStopAtLevel=1" in found.machine.java_options
    assert found.machine.cores == cores_here()


def test_the_profile_of_the_command_leaves_open_what_a_start_chooses() -> None:
    """Each choice arrives where the stages look for it, and nothing else changes."""
    profile = read_profile(PROFILE)
    found, choices = fitted(profile, PLACE)
    assert {each.name: each.value for each in choices} == CHOSEN
    assert found.machine == replace(profile.machine, partitions=1)
    sizes = {"horizon_ms": HOUR_MS, "partitions": 6, "driver_rows": 500_000, "max_bytes": 16_000_000}
    settings = replace(profile.options.settings, **sizes)  # type: ignore[arg-type] # sizes are no flags
    options = replace(profile.options, settings=settings)
    assert isinstance(options.clock, LiveClock)
    assert found.options == replace(options, clock=replace(options.clock, max_step_ms=2 * MINUTE_MS))


def test_what_a_profile_states_wins() -> None:
    """The production example states everything, so nothing is left to choose."""
    profile = read_profile(CONF / "production.toml")
    assert fitted(profile, PLACE) == (profile, [])


@pytest.mark.parametrize("name", ["cores", "partitions"])
def test_a_session_that_could_not_work_is_refused(tmp_path: Path, name: str) -> None:
    """Spark's own words for it come late and say little."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(f"[session]\n{name} = 0\n", encoding="utf-8")
    with pytest.raises(BadSetting) as refused:
        read_profile(wrong)
    assert (refused.value.field, refused.value.value, refused.value.allowed) == (name, 0, "1..100000")


def test_choices_are_told_as_a_profile_would_state_them() -> None:
    """Whoever wants another value copies the line and changes it."""
    said = list(lines(PLACE, fitted(read_profile(PROFILE), PLACE)[1]))
    assert said[0] == "Chosen for 4,000 messages a second, segments of 1m, 6 cores, 4.0 GB:"
    assert said[2] == "  settings.horizon_ms = 3_600_000 (1h): 14.4 million positions in the state"
    assert said[3] == "  settings.partitions = 6: one task of a large sort for each core"
    for line in said[1:]:
        name, value = line.strip().partition(" (")[0].partition(": ")[0].split(" = ")
        assert tomllib.loads(f"{name} = {value}") != {}
        assert int(value) == CHOSEN[name]


def test_a_start_that_chooses_nothing_says_nothing() -> None:
    """A heading without lines is no news."""
    assert list(lines(PLACE, [])) == []


def test_the_production_example_names_everything_that_can_be_set() -> None:
    """It is the reference of profiles."""
    kinds = {"session": Machine, "settings": Settings, "clock": LiveClock}
    wanted = {section: {field.name for field in fields(kind)} for section, kind in kinds.items()}
    wanted["run"] = {"trigger", "maintain_ms"} | {field.name for field in fields(Upkeep) if "retain" in field.name}
    wanted["run"] |= {field.name for field in fields(Watching)}
    sections = tomllib.loads((CONF / "production.toml").read_text(encoding="utf-8"))
    assert {section: set(values) for section, values in sections.items()} == wanted


def test_a_name_that_no_profile_knows_is_refused(tmp_path: Path) -> None:
    """A misspelt setting would silently be the default."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[settings]\nhorizon = 1\n", encoding="utf-8")
    with pytest.raises(BadSetting) as refused:
        read_profile(wrong)
    assert refused.value.field == "settings.horizon"


@pytest.mark.parametrize("line", ["run = 5", 'clock = "live"', "session = true", "source = 5", "[[settings]]"])
def test_a_value_in_the_place_of_a_table_is_refused_by_its_name(tmp_path: Path, line: str) -> None:
    """What Python says of it names neither the profile nor the table."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(BadSetting) as refused:
        read_profile(wrong)
    name = line.strip("[]").partition(" ")[0]
    assert (refused.value.field, refused.value.allowed) == (name, f"a table: [{name}]")


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("clock", "resolution_ms", '"100"'),
        ("settings", "driver_rows", "true"),
        ("session", "cores", "true"),
        ("run", "metrics_port", "true"),
        ("session", "memory", "2024-01-01"),
        ("session", "memory", "4"),
        ("session", "memory", "{x = 1}"),
        ("session", "java_options", "['-Xss16m']"),
        ("run", "trigger", "5"),
        ("run", "progress_log", "5"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_its_name(tmp_path: Path, section: str, name: str, value: str) -> None:
    """To Python `true` is 1: a start would take it without a word. What Spark says of a date is no help."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(f"[{section}]\n{name} = {value}\n", encoding="utf-8")
    with pytest.raises(BadSetting) as refused:
        read_profile(wrong)
    assert refused.value.field.endswith(name)


@pytest.mark.parametrize("value", ['"/data"', "[1]", '["data/orders"]'])
def test_tables_of_guards_are_a_list_of_folders_from_the_root_on(tmp_path: Path, value: str) -> None:
    """None at first; a text that is taken for a list of letters would allow the root."""
    profile = tmp_path / "profile.toml"
    profile.write_text('[settings]\nguard_tables = ["/data/orders", "s3://bucket/orders"]\n', encoding="utf-8")
    assert read_profile(profile).options.settings.guard_tables == ("/data/orders", "s3://bucket/orders")
    assert Settings().guard_tables == ()
    profile.write_text(f"[settings]\nguard_tables = {value}\n", encoding="utf-8")
    with pytest.raises(BadSetting) as refused:
        read_profile(profile)
    assert refused.value.field == "guard_tables"


@pytest.mark.parametrize("line", ["maintain_ms = 999", "retain_ms = 59_999", "retain_log_ms = 0"])
def test_a_retention_that_would_take_what_is_being_read_is_refused(tmp_path: Path, line: str) -> None:
    """Less than a minute of history, or a round a moment, is a slip of the pen."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(f"[run]\n{line}\n", encoding="utf-8")
    with pytest.raises(BadSetting) as refused:
        read_profile(wrong)
    assert refused.value.field == f"run.{line.partition(' ')[0]}"


STATED = """
[session]
memory = "4g"
[clock]
lookahead_ms = 60_000
[settings]
driver_rows = 1_000
horizon_ms = 120_000
[run]
trigger = "5 seconds"
maintain_ms = 60_000
retain_log_ms = 86_400_000
"""


def test_what_the_guide_says_to_state_is_not_chosen(tmp_path: Path) -> None:
    """Each row of its table of sizes. What is chosen beside them follows: a batch of the inbox is smaller, too."""
    table = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8").partition("| If | Then |")[2].partition("\n\n")[0]
    names = {f"{section}.{name}" for section, values in tomllib.loads(STATED).items() for name in values}
    assert set(re.findall(r"`(\w+\.\w+)`", table)) == names - {"run.maintain_ms"}
    profile = tmp_path / "profile.toml"
    profile.write_text(STATED, encoding="utf-8")
    found, choices = fitted(read_profile(profile), PLACE)
    settings, upkeep = found.options.settings, found.options.upkeep
    assert names & {each.name for each in choices} == set()
    assert upkeep is not None
    assert isinstance(found.options.clock, LiveClock)
    assert (found.machine.memory, found.options.trigger, upkeep.retain_log_ms) == ("4g", "5 seconds", DAY_MS)
    assert (settings.driver_rows, settings.horizon_ms, found.options.clock.lookahead_ms) == (1_000, 120_000, 60_000)
    assert settings.max_bytes < CHOSEN["settings.max_bytes"]


def test_without_a_pause_there_is_no_maintenance(tmp_path: Path) -> None:
    """What is kept says nothing about whether anything goes."""
    quiet = tmp_path / "quiet.toml"
    quiet.write_text("[run]\nretain_ms = 60_000\n", encoding="utf-8")
    assert read_profile(quiet).options.upkeep is None


def test_the_command_has_maintenance_unless_its_pause_is_0(tmp_path: Path) -> None:
    """A file is laid over the profile of the command, which has a pause; a main for spark-submit reads it alone."""
    small, quiet = tmp_path / "small.toml", tmp_path / "quiet.toml"
    small.write_text("[settings]\ndriver_rows = 5\n", encoding="utf-8")
    quiet.write_text("[run]\nmaintain_ms = 0\n", encoding="utf-8")
    assert profile_from(small).options.upkeep == read_profile(PROFILE).options.upkeep
    assert profile_from(small).options.upkeep is not None
    assert read_profile(small).options.upkeep is None
    assert profile_from(quiet).options.upkeep is None


def test_spark_defaults_are_what_a_session_of_ours_has() -> None:
    """Under spark-submit the file says what `pipeline.config.session` says elsewhere; the two must not drift apart."""
    assert pairs(CONF / "spark-defaults.conf", None) == CORRECTNESS | SOCKETS | COST


def test_what_the_page_says_of_clusters_stands_in_the_file_without_effect() -> None:
    """Whoever runs a cluster takes a `#` away. A secret is not made up here."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (block,) = (each for each in page.split("```") if "spark.authenticate.secret" in each)
    wanted = {words[0]: words[1:] for words in map(str.split, block.strip().splitlines())}
    wanted["spark.authenticate.secret"] = []
    lines = (CONF / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    found = {words[0]: words[1:] for line in lines if line.startswith("#spark.") and (words := line[1:].split())}
    assert {name: found.get(name) for name in wanted} == wanted


def test_the_log_file_of_the_command_exists_and_takes_errors_only() -> None:
    """Log4j falls back to its own format and levels, without a word that anybody sees, when the file is missing."""
    assert LOG4J == CONF / "log4j2.properties"
    assert pairs(LOG4J, "=")["rootLogger.level"] == "error"


def test_a_profile_is_laid_over_the_one_of_the_command(tmp_path: Path) -> None:
    """Two lines of it change two settings, and the command line is laid over both; what a source states is together."""
    profile = tmp_path / "mine.toml"
    profile.write_text('[run]\nretain_ms = 60_000\n[source.orders]\nfrom = "kafka://a:1/t"\n', encoding="utf-8")
    texts = ["settings.driver_rows = 0", "session.memory=4g", "source.orders.max_rows=7"]
    found = profile_from(profile, texts, 9_090)
    local = read_profile(PROFILE)
    assert found.options.upkeep == replace(local.options.upkeep or Upkeep(), retain_ms=60_000)
    assert (found.machine.memory, found.machine.java_options) == ("4g", local.machine.java_options)
    assert (found.options.settings.driver_rows, found.watching.metrics_port) == (0, 9_090)
    assert [(each.address, each.max_rows) for each in found.sources] == [("kafka://a:1/t", 7)]
    assert profile_from(None, ["run.maintain_ms=0"]).options.upkeep is None


def test_what_is_shown_is_a_profile_that_can_be_read(tmp_path: Path) -> None:
    """Each value with where it stands. What a start chooses it states for the warehouse that is named."""
    stated = profile_from(None, ["settings.driver_rows=5", 'settings.guard_tables=["/data"]'])
    saved = tmp_path / "saved.toml"
    for place in (None, PLACE):
        settings = list(shown(stated, place))
        saved.write_text("\n".join(shown_lines(settings)), encoding="utf-8")
        again = read_profile(saved)
        origins = {each.setting: each.origin for each in settings}
        assert fitted(again, PLACE)[0].options == fitted(stated, PLACE)[0].options
        assert (origins["settings.driver_rows"], origins["run.retain_ms"]) == ("--set", "local.toml")
        assert origins["settings.horizon_ms"].startswith("chosen")
        assert ("settings.horizon_ms" in again.stated) == (place is PLACE)


@pytest.mark.parametrize(
    "text",
    [
        *("driver_rows=5", "settings.driver_rows", "settings.=5", "=5", "settings..a=1"),
        *("session.memory.x=1", "source.orders.topic.x=1", "source.a.topic=1"),
    ],
)
def test_a_setting_of_another_form_is_refused(text: str) -> None:
    """With the form that it has, also where a value stands already. Only a source has names below its name."""
    with pytest.raises(BadSetting, match=r"SECTION\.NAME=VALUE"):
        profile_from(None, ["session.memory=4g", "source.a=5", text])


def test_a_port_that_is_taken_is_found_before_spark_starts() -> None:
    """The answer is known in a moment, and a start takes seconds."""
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadSetting) as refused:
            check_port(Watching(taken.getsockname()[1]))
    assert refused.value.field == "run.metrics_port"
    check_port(Watching())


@pytest.mark.parametrize("content", [b"a = ", b"\xff"])
def test_a_profile_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    """The parser knows the line and the column, and not the file."""
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(BadSetting, match=r"profile = '.*bad\.toml', allowed: a file of TOML") as refused:
        profile_from(path)
    assert refused.value.field == "profile"

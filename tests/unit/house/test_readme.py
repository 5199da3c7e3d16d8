"""README and the pages of `docs/`: examples print what they show, commands are commands, what is named exists."""

from __future__ import annotations

import doctest
import os
import re
import select
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import guide
from tests.support.modules import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"`(?:delayline\.)?((?:pipeline|jobs|state|schemas|benchmarks)(?:\.\w+)+)`")
COMMAND = re.compile(r"(?:^|[ (])(delayline [a-z-]+(?: +(?:\"[^\"]*\"|'[^']*'|[^|;)\"'\s]+))*)", re.MULTILINE)
"""Also in a loop, before a pipe, and in parentheses."""
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def outcome(text: str) -> doctest.TestResults:
    """Run the Python sessions of a text, one after the other, in one namespace."""
    examples = "\n".join(BLOCK.findall(text))
    test = doctest.DocTestParser().get_doctest(examples, {}, "guide", None, 0)
    return doctest.DocTestRunner().run(test)


def commands(text: str) -> list[list[str]]:
    """The commands `delayline ...` in the fenced blocks of a text, without what the shell makes of the rest."""
    found = COMMAND.findall("\n".join(FENCE.findall(text)).replace("\\\n", " "))
    return [shlex.split(re.split(r" [<>&]| # ", line)[0])[1:] for line in found]


def test_the_examples_of_the_index_print_what_they_show() -> None:
    """A reader who types the examples sees the same answers."""
    result = outcome((ROOT / "docs" / "guide.md").read_text(encoding="utf-8"))
    assert result.attempted > 0
    assert result.failed == 0


def test_a_wrong_answer_in_an_example_is_seen() -> None:
    """The runner fails an example whose answer is not what is shown."""
    assert outcome("```python\n>>> 1 + 1\n3\n```\n").failed == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_a_command(page: Path) -> None:
    """An option that was renamed would be found by a newcomer."""
    typer = pytest.importorskip("typer", reason="the command needs requirements/all.lock")
    pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
    from jobs import cli  # noqa: PLC0415 - only where everything is installed

    group: Any = typer.main.get_command(cli.app)
    for words in commands(page.read_text(encoding="utf-8")):
        with group.make_context("delayline", list(words)) as context:
            name, found, rest = group.resolve_command(context, list(words))
            assert found is not None
            found.make_context(name, rest)


def test_readme_and_guide_have_commands() -> None:
    """The check above must have something to look at."""
    assert len(commands(README.read_text(encoding="utf-8"))) > 5
    assert commands("```shell\ndelayline run --w x \\\n  -y > z &\n```\n") == [["run", "--w", "x", "-y"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_and_folder_that_is_named_exists(page: Path) -> None:
    """A page that was renamed would be looked for in vain."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:[\w-]+/)*[\w.-]+\.md|(?:docs|tests|pipeline|benchmarks|conf|state|schemas)/[\w./-]*)`", text
    )
    pictures = re.findall(r"!\[[^]]*\]\((\S+)\)", text)
    made = [each for each in (*named, *pictures) if not each.startswith("benchmarks/out")]
    assert [each for each in made if not any((folder / each).exists() for folder in (ROOT, page.parent))] == []


def test_every_module_that_a_page_or_a_comment_names_exists() -> None:
    """`pipeline.config.session` leads somewhere; a module that was moved takes its name along."""
    folders = ("pipeline", "jobs", "state", "schemas", "benchmarks", "conf", "tests")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in {".py", ".toml", ".conf"}]
    lost = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (*PAGES, *files)
        for name in MODULE.findall(path.read_text(encoding="utf-8"))
        if not _resolves(name.split("."))
    }
    assert len(files) > 100
    assert lost == set()
    assert not _resolves(["pipeline", "nowhere"])


def _resolves(parts: list[str]) -> bool:
    """Whether dotted words name a package, a module, or what one of them mentions."""
    path = ROOT.joinpath(*parts)
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    owners = (path.parent.with_suffix(".py"), path.parent / "__init__.py")
    return any(each.exists() and parts[-1] in each.read_text(encoding="utf-8") for each in owners)


def test_the_versions_of_the_readme_are_those_of_the_package() -> None:
    """Who pins by the table gets what was tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = README.read_text(encoding="utf-8").partition("## Versions")[2].partition("\n## ")[0]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    assert [each for each in wanted if f"`{each}`" not in table] == []
    assert f"`{project['requires-python']}`" in table
    assert f"delayline-{project['version']}-" in README.read_text(encoding="utf-8")


def test_the_guide_has_each_way_to_produce_and_to_consume() -> None:
    """`tests/smoke/test_wheel.py` types the blocks between the markers; one that moved out would not be run."""
    typed = "".join(text for _, text in guide.blocks(README.read_text(encoding="utf-8")))
    words = (
        "pip install",
        "init",
        "subscribe",
        "delayline send",
        "delayline.send",
        ".save(",
        "receive",
        "sql",
        "readStream",
    )
    assert [each for each in words if each not in typed] == []


def test_a_guide_ends_at_its_first_failure_and_leaves_nothing_running(tmp_path: Path) -> None:
    """What is typed in the background ends with it, and what comes after is not typed."""
    up, held = tmp_path / "up", tmp_path / "held"
    os.mkfifo(up)
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    beside = f"sh -c 'exec > {held}; echo > {up}; exec sleep 1000' &"
    typed = (beside, f"read -r _ < {up}; false", f"touch {tmp_path}/x")
    page = "\n".join([guide.BEGIN, *(f"```shell\n{each}\n```" for each in typed), guide.END])
    with pytest.raises(subprocess.CalledProcessError):
        guide.follow(page)
    assert not (tmp_path / "x").exists()
    # A pipe that nobody holds open any more is at its end.
    assert select.select([reader], [], [], 60)[0] == [reader]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_page_without_a_guide_is_refused() -> None:
    """Markers that were lost would leave nothing to type, and every test of it green."""
    with pytest.raises(ValueError, match="none"):
        list(guide.blocks("none"))


def test_each_decision_record_has_one_line_in_the_index() -> None:
    """Who looks for the reason of a rule looks there, room by room."""
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^- \[(\d{4})\]\((.+?)\): ", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for _, name in listed) == sorted(each.name for each in folder.glob("0*.md"))
    assert [name for number, name in listed if not name.startswith(f"{number}-")] == []

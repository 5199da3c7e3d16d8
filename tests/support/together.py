"""Several scripts in one world: its stages start once for all of them, and each instant is reached once.

Each script has topics of its own, and is written as if it were alone. `together` makes one script of them: what one
does and looks at after an instant comes at once, what it appends for its next instant waits for that. Restarts that
several ask for at the same time are one. So a script may meet more instants and more restarts than it names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from pipeline.config.settings import Settings
from tests.support.stream import Advance, Append, Kill, Restart, Step, World
from tests.support.worlds import Play, on_spark

Script = deque[tuple[str, Step]]
FAILURES = (Exception, pytest.fail.Exception)
"""What a look may raise: also what `pytest.raises` does when nothing was raised."""
_NEVER = 2**63


@dataclass
class Played:
    """A run of several scripts: its world when it was over, and what was not as a script has it."""

    names: Collection[str]
    world: World | None = None
    failures: dict[str, BaseException] = field(default_factory=dict)
    broken: BaseException | None = None

    def shows(self, name: str) -> World:
        """The world, when all was as the script of this name has it.

        Raises:
            BaseException: the first thing that was not, of this script; or what ended the whole run.
        """
        assert name in self.names
        if name in self.failures:
            raise self.failures[name]
        if self.broken is not None or self.world is None:
            raise AssertionError("another script or the stages ended the run") from self.broken
        return self.world


def play_together(
    scripts: Mapping[str, Sequence[Step]], settings: Settings | None = None, play: Play = on_spark
) -> Played:
    """Play scripts in one new world. A look that fails is kept for the test of its script, and the others go on."""
    played = Played(scripts.keys())
    steps = [kept(name, step, played) for name, step in together(scripts)]
    try:
        played.world = play(steps, settings)
    except FAILURES as error:
        played.broken = error
    return played


def kept(name: str, step: Step, played: Played) -> Step:
    """A step whose failure is kept, but for those that all share."""
    if isinstance(step, Advance | Restart):
        return step

    def guarded(world: World) -> None:
        try:
            step(world)
        except FAILURES as error:
            error.add_note(f"in the script `{name}`, by {getattr(step, '__qualname__', step)}")
            played.failures.setdefault(name, error)

    return guarded


def together(scripts: Mapping[str, Sequence[Step]]) -> Iterator[tuple[str, Step]]:
    """The steps of all scripts in the order in which one world takes them, each with the name of its script."""
    left = [deque((name, step) for step in steps) for name, steps in scripts.items()]
    while any(left):
        yield from _up_to_a_restart(left)
        wanted = next((script[0] for script in left if script and isinstance(script[0][1], Restart)), None)
        if wanted is not None:
            yield wanted
            for script in left:
                if script and script[0][1] == wanted[1]:
                    script.popleft()
            continue
        yield from _to_the_next_instant(left)


def _up_to_a_restart(left: list[Script]) -> Iterator[tuple[str, Step]]:
    for script in left:
        yield from _taken(script, lambda step: isinstance(step, Append | Kill | Advance | Restart))


def _to_the_next_instant(left: list[Script]) -> Iterator[tuple[str, Step]]:
    """What the scripts whose instant is next do before it, and the instant; who died then is the first to go on."""
    instant = min(_instant(script) for script in left)
    killed: list[Script] = []
    for script in left:
        if script and _instant(script) == instant:
            before = list(_taken(script, lambda step: isinstance(step, Advance)))
            killed += [script] if any(isinstance(step, Kill) for _, step in before) else []
            yield from before
            if script:
                script.popleft()
    assert len(killed) < 2, "one death at an instant"
    if instant < _NEVER:
        yield "all", Advance(instant)
    for script in killed:
        yield from _taken(script, lambda step: isinstance(step, Append | Advance))


def _taken(script: Script, until: Callable[[Step], bool]) -> Iterator[tuple[str, Step]]:
    while script and not until(script[0][1]):
        yield script.popleft()


def _instant(script: Script) -> int:
    """The next instant of a script; one that has none comes last."""
    return next((step.instant for _, step in script if isinstance(step, Advance)), _NEVER)
